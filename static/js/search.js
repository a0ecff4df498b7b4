// The key that [data-search-key] names puts the cursor into the search field, unless somebody is typing elsewhere.
(() => {
  "use strict";
  document.addEventListener("keydown", (event) => {
    const field = document.querySelector("[data-search-key]");
    if (!field || event.key !== field.dataset.searchKey || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
})();

// A live log: [data-log] names a stream of finished lines and of the line that is still being written. Each event carries
// its place in the log, so that a connection that breaks goes on without a gap and without a repetition.
(() => {
  "use strict";
  const LINES_KEPT = 20000; // more than a person scrolls; the download has all

  function follow(list) {
    const panel = list.closest(".panel");
    const button = panel.querySelector("[data-log-follow]");
    const source = new EventSource(list.dataset.log);
    let following = true;

    function toEnd() {
      if (following) list.scrollTop = list.scrollHeight;
    }

    function setFollowing(value) {
      following = value;
      button.setAttribute("aria-pressed", String(value));
      button.textContent = value ? button.dataset.on : button.dataset.off;
      toEnd();
    }

    button.hidden = false;
    button.addEventListener("click", () => setFollowing(!following));
    list.addEventListener("scroll", () => {
      const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
      if (atEnd !== following) setFollowing(atEnd);
    });
    source.addEventListener("lines", (event) => {
      const { closed, open } = JSON.parse(event.data);
      list.querySelector("[data-open]")?.remove();
      list.insertAdjacentHTML("beforeend", closed + open);
      while (list.childElementCount > LINES_KEPT) list.firstElementChild.remove();
      if (list.childElementCount) panel.querySelector("[data-log-empty]")?.remove();
      toEnd();
    });
    source.addEventListener("end", () => {
      source.close();
      button.hidden = true;
    });
    source.addEventListener("gone", () => source.close());
    window.addEventListener("pagehide", () => source.close());
    toEnd();
  }

  function start() {
    for (const list of document.querySelectorAll("[data-log]:not([data-log-live])")) {
      list.setAttribute("data-log-live", "");
      follow(list);
    }
  }

  document.addEventListener("htmx:afterSettle", start);
  start();
})();

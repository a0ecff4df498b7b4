// What a reader opened (a details element with an id) stays open when its region is drawn again by htmx, and what he
// closed stays closed.
let open = [];
let all = [];
const found = () => [...document.querySelectorAll("details[id]")];

document.addEventListener("htmx:beforeSwap", () => {
  all = found().map((element) => element.id);
  open = found().filter((element) => element.open).map((element) => element.id);
});
document.addEventListener("htmx:afterSettle", () => {
  for (const element of found()) {
    if (all.includes(element.id)) element.toggleAttribute("open", open.includes(element.id));
  }
});

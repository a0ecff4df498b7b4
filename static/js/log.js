// A live log: [data-log] names a stream of finished lines and of the line that is still being written. Each event carries
// its place in the log ("lease:offset"), so that a stream that broke goes on without a gap and without a repetition.
import { follow } from "./stream.js";

const LINES_KEPT = 20000; // more than a person scrolls; the download has all
const NEAR_THE_END = 40; // pixels

function show(list) {
  const panel = list.closest(".panel");
  const button = panel.querySelector("[data-log-follow]");
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

  function address(last) {
    const url = new URL(list.dataset.log, window.location);
    if (last) url.searchParams.set("offset", last.split(":")[1]);
    return url;
  }

  const close = follow(address, {
    lines: ({ closed, open }) => {
      list.querySelector("[data-open]")?.remove();
      list.insertAdjacentHTML("beforeend", closed + open);
      while (list.childElementCount > LINES_KEPT) list.firstElementChild.remove();
      if (list.childElementCount) panel.querySelector("[data-log-empty]")?.remove();
      toEnd();
    },
    end: () => {
      close();
      button.hidden = true;
    },
    gone: () => close(),
  });

  button.hidden = false;
  button.addEventListener("click", () => setFollowing(!following));
  list.addEventListener("scroll", () => {
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_THE_END;
    if (atEnd !== following) setFollowing(atEnd);
  });
  document.addEventListener("htmx:beforeSwap", (event) => event.target.contains(list) && close());
  toEnd();
}

function start() {
  for (const list of document.querySelectorAll("[data-log]:not([data-log-live])")) {
    list.setAttribute("data-log-live", "");
    show(list);
  }
}

document.addEventListener("htmx:afterSettle", start);
start();

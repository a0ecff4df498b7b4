// Keeps a Space's page true. [data-live-source] names a stream that tells the present state, again and again, never what
// changed. Each [data-live] region knows which state it shows, and is fetched anew (by htmx) when that is another one.
//   data-live-by     which field of the state the region depends on (default: key)
//   data-live-ticks  draw again at each tick: something moves while the state stays the same
//   data-live-still  never draw again: the reader asked for something of the past
import "./keep_open.js"; // regions are drawn again and again
import { follow } from "./stream.js";

let latest;
let missed = false; // a state came while a region was being fetched

function refresh(state) {
  latest = state;
  for (const region of document.querySelectorAll("[data-live]")) {
    if ("liveStill" in region.dataset) continue;
    const present = String(state[region.dataset.liveBy || "key"] ?? "");
    const ticks = state.tick && "liveTicks" in region.dataset;
    if (present === region.dataset.live && !ticks) continue;
    // What htmx lets wait for a request under way is lost with the element that the answer replaces.
    if (region.classList.contains("htmx-request")) missed = true;
    else window.htmx.trigger(region, "openface:changed");
  }
}

for (const over of ["htmx:afterSettle", "htmx:responseError", "htmx:sendError"]) {
  document.addEventListener(over, () => {
    if (!missed) return;
    missed = false;
    refresh({ ...latest, tick: false });
  });
}

const root = document.querySelector("[data-live-source]");
const close = follow(() => root.dataset.liveSource, {
  state: refresh,
  gone: () => {
    close();
    window.location.reload(); // the page itself says best what is left to see
  },
});

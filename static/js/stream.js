// A stream of server-sent events that comes back by itself. A browser does so after a broken connection, but gives up for
// good after an answer that is no stream: a restart behind a proxy, a database that is away for a moment.
const FIRST_WAIT = 1000; // milliseconds
const LONGEST_WAIT = 30000;

// Calls handlers[name](data) for each event. `address` is a function of the id of the last event ("" at first), so that
// whoever needs it can go on where the last stream ended. Returns a function that ends it.
export function follow(address, handlers) {
  let source;
  let last = "";
  let wait = FIRST_WAIT;
  let timer;

  function open() {
    source = new EventSource(address(last));
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        last = event.lastEventId || last;
        wait = FIRST_WAIT;
        handle(JSON.parse(event.data));
      });
    }
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again itself
      timer = setTimeout(open, wait);
      wait = Math.min(2 * wait, LONGEST_WAIT);
    });
  }

  function close() {
    clearTimeout(timer);
    source.close();
  }

  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => event.persisted && open());
  open();
  return close;
}

// Stopwatches: [data-clock] holds the seconds that the server read; from there on the browser's own steady clock counts.
(() => {
  "use strict";
  const started = new WeakMap();

  function shown(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    const two = (number) => String(number).padStart(2, "0");
    const hours = Math.floor(whole / 3600);
    const minutes = Math.floor((whole % 3600) / 60);
    return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
  }

  function tick() {
    for (const element of document.querySelectorAll("[data-clock]")) {
      if (!started.has(element)) started.set(element, performance.now());
      const passed = (performance.now() - started.get(element)) / 1000;
      element.textContent = shown(Number(element.dataset.clock) + passed);
    }
  }

  setInterval(tick, 1000);
  tick();
})();

// Asks again and again, once a second by default, while the page is visible.

import { explain } from "./frame.js";

const EVERY_MS = 1000;

// `look` tells whether to go on; its end is not awaited. A failure is shown in `place`, and looking goes on after a while:
// a service that was restarted is found again.
export async function poll(place, look, every = EVERY_MS) {
  let failures = 0;
  let shown = null;
  for (;;) {
    try {
      const more = await look();
      shown?.remove();
      shown = null;
      failures = 0;
      if (!more) return;
    } catch (error) {
      failures += 1;
      const said = explain(error);
      if (shown?.textContent !== said.textContent) {
        shown?.remove();
        place.before(said);
        shown = said;
      }
      if (error.wantsToken || !(error.status === 0 || error.status >= 429)) return;
    }
    await new Promise((resolve) => setTimeout(resolve, every * Math.min(10, 1 + failures)));
    await visible();
  }
}

function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
  });
}

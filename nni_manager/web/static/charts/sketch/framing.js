// Horizontal selection of a part of a panel, with mouse, pen or finger.

import { isNarrow } from "../plot.js";
import { extent } from "../formats.js";

// Narrower selections count as clicks.
const LEAST_PX = 5;

// `panelAt(left, top)`: the panel at a position, or undefined. `on`: framing(panel, [from, to] in pixels, or null) during
// and after the drag, framed(panel, [from, to]) at its end. On narrow screens, fingers scroll instead.
export function listen(body, panelAt, on) {
  let drag = null;
  let isDone = false;
  const place = ({ clientX, clientY }) => {
    const box = body.getBoundingClientRect();
    return [clientX - box.left, clientY - box.top];
  };
  const ends = ({ panel, from, to }) => extent([from, Math.min(Math.max(to, panel.left), panel.right)]);
  const isWide = () => drag && Math.abs(drag.to - drag.from) >= LEAST_PX;
  body.addEventListener("pointerdown", (event) => {
    const [from, top] = place(event);
    const panel = panelAt(from, top);
    isDone = false;
    if (event.button !== 0 || !panel || isNarrow()) return;
    drag = { panel, from, to: from };
    body.setPointerCapture(event.pointerId);
  });
  body.addEventListener("pointermove", (event) => {
    if (!drag) return;
    [drag.to] = place(event);
    on.framing(drag.panel, isWide() ? ends(drag) : null);
  });
  const end = () => {
    if (drag) on.framing(drag.panel, null);
    drag = null;
  };
  body.addEventListener("pointerup", () => {
    isDone = isWide();
    const ended = drag;
    end();
    if (isDone) on.framed(ended.panel, ends(ended));
  });
  body.addEventListener("pointercancel", end);
  body.addEventListener("click", (event) => isDone && event.stopImmediatePropagation(), { capture: true });
}

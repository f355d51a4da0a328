// Shows what the nearest mark of a drawing stands for, under the mouse or the finger.
"use strict";
const REACH = 30;
const tip = document.getElementById("tip");
const drawings = Array.from(document.querySelectorAll("svg[role=img]"));

function hide() {
  tip.hidden = true;
  for (const ring of document.querySelectorAll(".ring")) ring.remove();
}

function follow(drawing) {
  const ring = document.createElementNS(drawing.namespaceURI, "circle");
  ring.setAttribute("class", "ring");
  ring.setAttribute("r", "7");
  let marks = null;

  function read() {
    const inverse = drawing.getScreenCTM().inverse();
    return Array.from(drawing.querySelectorAll("[data-tip]"), (mark) => {
      const box = mark.getBoundingClientRect();
      const centre = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2).matrixTransform(inverse);
      return { x: centre.x, y: centre.y, field: mark.matches("rect"), text: mark.dataset.tip };
    });
  }

  function show(event) {
    marks ??= read();
    const toScreen = drawing.getScreenCTM();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(toScreen.inverse());
    let nearest = null;
    let least = Infinity;
    for (const mark of marks) {
      const distance = Math.hypot(mark.x - at.x, mark.y - at.y);
      if (distance < least) [nearest, least] = [mark, distance];
    }
    hide();
    if (nearest === null || (!nearest.field && least * toScreen.a > REACH)) return;
    tip.textContent = nearest.text;
    tip.hidden = false;
    if (!nearest.field) {
      ring.setAttribute("cx", nearest.x);
      ring.setAttribute("cy", nearest.y);
      drawing.append(ring);
    }
    const place = new DOMPoint(nearest.x, nearest.y).matrixTransform(toScreen);
    const left = Math.min(Math.max(place.x - tip.offsetWidth / 2, 4), window.innerWidth - tip.offsetWidth - 4);
    const above = place.y - tip.offsetHeight - 14;
    tip.style.transform = `translate(${left}px, ${above < 4 ? place.y + 16 : above}px)`;
  }

  drawing.addEventListener("pointermove", show);
  drawing.addEventListener("pointerdown", show);
  drawing.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
}

drawings.forEach(follow);
window.addEventListener("scroll", hide, { passive: true });
document.addEventListener("pointerdown", (event) => drawings.some((one) => one.contains(event.target)) || hide());

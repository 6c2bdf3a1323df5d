/** The camera: a dialog that takes one photo after another. */

import { button, count, h } from "./dom.js";
import { announce, notify } from "./notices.js";
import { choose } from "./pick.js";

const QUALITY = 0.92; // of the JPEG; artefacts are below what the network sees

/**
 * Let the user take photos; each goes to `onPicked` at once, as a list of one.
 *
 * Browsers hand over the picture of a camera on this machine and over HTTPS only. Elsewhere, a phone's own camera opens.
 */
export async function takePhotos(onPicked, purpose) {
  if (!navigator.mediaDevices?.getUserMedia) {
    const picked = await choose({ camera: true });
    if (picked.length) onPicked(picked);
    return;
  }
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch {
    notify("The browser did not allow the camera, or there is none. Choose photos instead.", { fault: true });
    return;
  }
  showCamera(stream, onPicked, purpose);
}

function showCamera(stream, onPicked, purpose) {
  let taken = 0;
  const video = h("video", { autoplay: true, playsinline: true, muted: true, "aria-label": "Picture of the camera" });
  video.srcObject = stream;
  const words = h("p", { class: "soft", role: "status" }, purpose);
  const shoot = async () => {
    const file = await snapshot(video, taken + 1);
    taken += 1;
    words.textContent = `${count(taken, "photo")} taken.`;
    onPicked([{ file, path: file.name }]);
  };
  const end = () => {
    for (const track of stream.getTracks()) track.stop();
    dialog.remove();
    if (taken) announce(`${count(taken, "photo")} taken.`);
  };
  const shutter = button("Take a photo", shoot, { icon: "camera", class: "primary", autofocus: true, disabled: true });
  video.addEventListener("loadeddata", () => { shutter.disabled = false; });
  const dialog = h(
    "dialog",
    { class: "camera", "aria-labelledby": "camera-title", onclose: end },
    h("h2", { id: "camera-title" }, "Camera"),
    video,
    words,
    h("p", { class: "buttons" }, button("Done", () => dialog.close()), shutter),
  );
  document.body.append(dialog);
  dialog.showModal();
}

async function snapshot(video, number) {
  const canvas = h("canvas", { width: video.videoWidth, height: video.videoHeight });
  canvas.getContext("2d").drawImage(video, 0, 0);
  const blob = await new Promise((resolve) => { canvas.toBlob(resolve, "image/jpeg", QUALITY); });
  return new File([blob], `camera ${new Date().toLocaleString("sv").replaceAll(":", "-")} ${number}.jpg`, { type: "image/jpeg" });
}

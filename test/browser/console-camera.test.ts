/** A camera as a scanner: its video is read in a real Chromium, without any other part of it being replaced. */

import { expect } from "bun:test";
import { describeInBrowser, startJourneys } from "../support/browser.ts";
import { holdBeforeCamera } from "../support/camera.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";

const CODE = "4006381333931";

const { it, test } = await startJourneys({}, async ({ url }) => {
  await sendPlant(url, { id: BigInt(CODE), name: "Oak", tag: "tree" });
  await sendPlant(url, { id: 42n, name: "Elm", tag: "tree" });
  await sendPlant(url, { id: 1n, name: "Rose", tag: "shrub" });
});

describeInBrowser("the camera", () => {
  // The tests that follow have an EAN-13 and a QR code before it.
  it("reads the Code 128 of a plant and opens it", async (visit) => {
    await holdBeforeCamera("Code 128", "42");
    const { page, user } = await visit.open();
    await user.click("Scan with the camera", { shown: "Elm" });
    expect(await page.locator("dialog[open]").count()).toBe(0);
    await user.untilAt("#/plants/42?q=42");
  });

  test("keeps an edit, as every scan does", async (visit) => {
    await holdBeforeCamera("EAN-13", CODE);
    const { user } = await visit.open({ at: "#/plants/1" });
    await user.edit("Rosa");
    await user.click("Scan with the camera", { shown: "Oak" });
    await user.toast("Your edit of “Rose” isn't saved yet").getByText("Open").click();
    expect(await user.field("Name").inputValue()).toBe("Rosa");
  });

  test("says that a code is no id, and is off when its dialog is closed", async (visit) => {
    await holdBeforeCamera("QR code", "https://example.com/");
    const { page, user } = await visit.open();
    await user.click("Scan with the camera", {
      text: "This code is not an id: https://example.com/",
    });
    await page.evaluate(`window.track = document.querySelector("video").srcObject.getTracks()[0]`);
    await user.press("Escape");
    await page.locator("dialog").waitFor({ state: "detached" });
    await user.untilSo(`window.track.readyState === "ended"`);
  });

  test("is off after its person signs out, also for the next one", async (visit) => {
    await holdBeforeCamera("QR code", "https://example.com/");
    const { page, user } = await visit.open({ isKept: true });
    await user.goTo("#/plants", { row: "Rose" });
    await user.click("Scan with the camera", { text: "This code is not an id" });
    const other = await user.openTab(`${visit.service.url}/#/plants`, { row: "Rose" });
    await other.signOut();
    await user.see({ heading: "Sign in" });
    await user.signIn(TEST_TOKEN);
    await user.goTo("#/plants", { row: "Rose" });
    expect(await page.locator("dialog, video").count()).toBe(0);
  });

  test("stays off where the library cannot be loaded", async (visit) => {
    const prelude = `{
      const media = navigator.mediaDevices;
      const open = media.getUserMedia.bind(media);
      window.streams = [];
      media.getUserMedia = async (wanted) => {
        const stream = await open(wanted);
        streams.push(stream);
        return stream;
      };
    }`;
    const { page, user, announceFailure } = await visit.open({ prelude });
    announceFailure("/camera", "failed");
    await page.route("**/camera*.js", (route) => route.abort());
    await user.click("Scan with the camera", { text: "No picture" });
    const live = "streams.filter((each) => each.active).length";
    expect(await page.evaluate<number>(live)).toBe(0);
  });

  test("is read by the browser itself where it can, and no library is loaded", async (visit) => {
    await holdBeforeCamera("EAN-13", CODE);
    const prelude = `globalThis.BarcodeDetector = class {
      static getSupportedFormats = async () => ["qr_code", "ean_13", "code_128"];
      detect = async () => [{ rawValue: "42" }];
    }`;
    const { page, user } = await visit.open({ prelude });
    const loaded: string[] = [];
    page.on("request", (request) => loaded.push(request.url()));
    await user.click("Scan with the camera", { shown: "Elm" });
    expect(loaded.filter((url) => url.includes("camera"))).toEqual([]);
  });

  test("that may not be used says so, and is not offered on an origin that is not secure", async (visit) => {
    const prelude = `navigator.mediaDevices.getUserMedia = () =>
      Promise.reject(new DOMException("", "NotAllowedError"))`;
    const { user } = await visit.open({ prelude });
    await user.click("Scan with the camera", {
      text: "The browser doesn't let this page use the camera.",
    });
    const insecure = `Object.defineProperty(window, "isSecureContext", { value: false })`;
    const { page } = await visit.open({ prelude: insecure });
    expect(await page.getByRole("button", { name: "Scan with the camera" }).count()).toBe(0);
  });
});

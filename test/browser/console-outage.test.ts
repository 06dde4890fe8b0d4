/** The console while the service is away: it says so, loses nothing, and recovers by itself. */

import { expect, test } from "bun:test";
import {
  describeInBrowser,
  looks,
  openConsole,
  startConsole,
  WITHOUT_PREFETCH,
} from "../support/browser.ts";
import { makeWorkplace } from "../support/folder.ts";
import { sendPlant } from "../support/service.ts";
import { until } from "../support/until.ts";

describeInBrowser("a service that is stopped and started again", () => {
  for (const [name, look] of looks)
    test(`is missed, and found again, by the list, a form and an undo: ${name}`, async () => {
      using workplace = makeWorkplace();
      let service = await startConsole(workplace.env);
      const { port } = new URL(service.url);
      const restart = async (): Promise<void> => {
        service = await startConsole({ ...workplace.env, PORT: port });
      };
      await sendPlant(service.url, { id: 1n, name: "Rose", tag: "shrub" });
      await sendPlant(service.url, { id: 2n, name: "Tulip", tag: "bulb" });
      const options = { ...look, prelude: WITHOUT_PREFETCH };
      const { page, user, announceFailure, allowFailure } = await openConsole(service, options);
      for (const path of ["/plants", "/livez"]) announceFailure(path, "failed");
      // Whether it is asked for again before the service is gone is a matter of moments.
      allowFailure("/changes", "failed");

      await service[Symbol.asyncDispose]();
      await user.search("ros", { heading: "No connection", text: "No connection to the store" });
      await restart();
      await user.see({ row: "Rose" });
      await page.getByText("No connection to the store").waitFor({ state: "detached" });

      await user.press("Escape n");
      await user.fillNew("3", "Rosemary");
      await service[Symbol.asyncDispose]();
      // The notice moves the button: a click in that moment would miss it.
      await user.see({ text: "No connection to the store" });
      await user.click("Add plant", { text: ["Not saved: no connection", "1 edit not saved."] });
      await restart();
      await user.see({ toast: "Added “Rosemary”" });
      await page.getByText("No connection to the store").waitFor({ state: "detached" });

      await user.openRow("Rosemary");
      await user.click("Delete", { toast: "Deleted" });
      await service[Symbol.asyncDispose]();
      await user.within(user.toast("Deleted")).click("Undo", { toast: "Couldn't restore" });
      await restart();
      await user.click("Try again", { toast: "Restored “Rosemary”" });
      expect((await service.store.findPlant(3n))?.name).toBe("Rosemary");
      await service[Symbol.asyncDispose]();
    });

  test("leaves the views that were not opened before within reach", async () => {
    using workplace = makeWorkplace();
    const service = await startConsole(workplace.env);
    const { page, user, announceFailure, allowFailure } = await openConsole(service);
    await until("the views are loaded", async () => {
      const names = await page.evaluate<string[]>(
        `performance.getEntriesByType("resource").map(({ name }) => name)`,
      );
      return names.filter((name) => /\/(view|changes)-[^/]*\.js$/.test(name)).length === 2;
    });
    announceFailure("/livez", "failed");
    allowFailure("/changes", "failed");
    await service[Symbol.asyncDispose]();
    await user.see({ text: "No connection to the store" });
    await page.getByRole("link", { name: "Import", exact: true }).click();
    await user.see({ text: "Drop a file here" });
  });

  test("brings a view that was not loaded before, or offers a reload where the service has none", async () => {
    using workplace = makeWorkplace();
    let service = await startConsole(workplace.env);
    const { port } = new URL(service.url);
    const { page, user, announceFailure, allowFailure } = await openConsole(service, {
      prelude: WITHOUT_PREFETCH,
    });
    for (const path of ["/livez", "/console/"]) announceFailure(path, "failed");
    // Which of the others are asked for again meanwhile is a matter of moments.
    for (const path of ["/changes", "/jobs", "/plants"]) allowFailure(path, "failed");
    await service[Symbol.asyncDispose]();
    await user.see({ text: "No connection to the store" });
    await page.getByRole("link", { name: "Import", exact: true }).click();
    await user.see({ text: "It comes when the connection is back." });
    // While it starts.
    for (const path of ["/changes", "/jobs", "/plants"]) allowFailure(path, 503);
    service = await startConsole({ ...workplace.env, PORT: port });
    await user.see({ text: "Drop a file here" });

    // After an upgrade its scripts have other names.
    announceFailure("/console/view-", 404);
    await page.route("**/console/view-*.js", (route) => route.fulfill({ status: 404 }));
    await user.reload({ text: "The service may have a new version." });
    await page.unroute("**/console/view-*.js");
    await user.click("Reload the page", { text: "Drop a file here" });
    await service[Symbol.asyncDispose]();
  });
});

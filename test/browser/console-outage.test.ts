/** The console while the service is away: it says so, loses nothing, and goes on by itself. */

import { expect, test } from "bun:test";
import {
  describeInBrowser,
  looks,
  openConsole,
  openRow,
  rowOf,
  startConsole,
  toastOf,
} from "../support/browser.ts";
import { makeWorkplace } from "../support/folder.ts";
import { sendPlant } from "../support/service.ts";
import { fillNew, press } from "../support/steps.ts";

describeInBrowser("a service that is stopped and started again", () => {
  test.each(looks)(
    "is missed, and found again, by the list, a form and an undo: %s",
    async (_name, look) => {
      using workplace = makeWorkplace();
      let service = await startConsole(workplace.env);
      const { port } = new URL(service.url);
      const restart = async (): Promise<void> => {
        service = await startConsole({ ...workplace.env, PORT: port });
      };
      await sendPlant(service.url, { id: 1n, name: "Rose", tag: "shrub" });
      await sendPlant(service.url, { id: 2n, name: "Tulip", tag: "bulb" });
      await using view = await openConsole(service, look);
      const { page } = view;
      for (const path of ["/plants", "/changes", "/livez"]) view.announceFailure(path, "failed");
      await rowOf(page, "Rose").waitFor();

      await service[Symbol.asyncDispose]();
      await page.getByRole("searchbox").fill("ros");
      await page.getByRole("heading", { name: "No connection" }).waitFor();
      await page.getByText("No connection to the store").waitFor();
      await restart();
      await rowOf(page, "Rose").waitFor();
      await page.getByText("No connection to the store").waitFor({ state: "detached" });

      await press(page, "Escape", "n");
      await fillNew(page, "3", "Rosemary");
      await service[Symbol.asyncDispose]();
      // The notice moves the button: a click in that moment would miss it.
      await page.getByText("No connection to the store").waitFor();
      await page.getByRole("button", { name: "Add plant" }).click();
      await page.getByText("Couldn't confirm the save").waitFor();
      await restart();
      await page.getByText("No connection to the store").waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Try again" }).click();
      await toastOf(page, "Added “Rosemary”").waitFor();

      await openRow(page, "Rosemary");
      await page.getByRole("button", { name: "Delete" }).click();
      await toastOf(page, "Deleted").waitFor();
      await service[Symbol.asyncDispose]();
      await toastOf(page, "Deleted").getByRole("button", { name: "Undo" }).click();
      await toastOf(page, "Couldn't restore").waitFor();
      await restart();
      await page.getByRole("button", { name: "Try again" }).click();
      await toastOf(page, "Restored “Rosemary”").waitFor();
      expect((await service.store.findPlant(3n))?.name).toBe("Rosemary");
      await service[Symbol.asyncDispose]();
    },
  );
});

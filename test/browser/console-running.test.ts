/** A running import, seen from other pages and tabs. */

import { expect } from "bun:test";
import {
  createToken,
  describeInBrowser,
  signIn,
  startJourneys,
  toastOf,
} from "../support/browser.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { chooseFile } from "../support/steps.ts";

const { it } = await startJourneys();

describeInBrowser("a running import", () => {
  it("is seen on every page and in a second tab, which hear of its end", async (visit) => {
    const { page, service } = await visit.open({ at: "#/import" });
    const gate = Promise.withResolvers<void>();
    await page.context().route("**/plants/batch*", async (route) => {
      await gate.promise;
      await route.fallback();
    });
    const stranger = await createToken(service, { name: "stranger" });
    const second = await page.context().newPage();
    await second.goto(service.url);
    await signIn(second, TEST_TOKEN);
    const third = await page.context().newPage();
    await third.goto(service.url);
    await signIn(third, stranger);
    await chooseFile(page, "shared.ndjson", '{"id":91,"name":"Box"}\nnone\n');
    await page.getByRole("button", { name: "Start import" }).click();
    for (const link of ["Plants", "Changes", "Health"]) {
      await page.getByRole("link", { name: link, exact: true }).click();
      await page.getByRole("progressbar", { name: "Import of shared.ndjson" }).waitFor();
    }
    await second.getByText("Importing shared.ndjson…").waitFor();
    await second.getByText("in another tab").waitFor();
    gate.resolve();
    const end = "The import of shared.ndjson ended: 1 added, 1 refused.";
    await toastOf(page, end).waitFor();
    await toastOf(second, end).waitFor();
    await second.getByText("Importing shared.ndjson…").waitFor({ state: "detached" });
    expect(await third.locator(".toast, .running").count()).toBe(0);
    await toastOf(page, end).getByRole("button", { name: "See" }).click();
    await page.getByText("1 of 2 rows was refused").waitFor();

    // A tab that is closed says so. Nothing is lost: the file can be imported again.
    await page.getByRole("button", { name: "Another file" }).click();
    await page.context().unrouteAll();
    await page.context().route("**/plants/batch*", () => undefined);
    await chooseFile(page, "closed.ndjson", '{"id":92,"name":"Box"}\n');
    await page.getByRole("button", { name: "Start import" }).click();
    await second.getByText("Importing closed.ndjson…").waitFor();
    page.once("dialog", (dialog) => void dialog.accept());
    await page.goto("about:blank");
    await toastOf(second, "stopped: its tab was closed").waitFor();
    await second.close();
    await third.close();
    await page.goto(service.url);
  });
});

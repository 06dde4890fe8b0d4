/** The API reference, in a real browser and against the very service that it describes. */

import { expect, test } from "bun:test";
import type { Locator, Page } from "playwright-core";
import { settings } from "../../src/config.ts";
import { describeInBrowser, looks, openPage, phone, type TestPage } from "../support/browser.ts";
import { startService, startShared, TEST_TOKEN } from "../support/service.ts";
import type { User } from "../support/steps.ts";
import { until } from "../support/until.ts";

const service = await startShared();

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, { operationId?: string }>>>>;
  readonly webhooks: object;
  readonly components: Readonly<Record<"schemas" | "headers", object>>;
}

const description = (await (await fetch(`${service.url}/openapi.json`)).json()) as Document;
const operationIds = Object.values(description.paths)
  .flatMap((path) => Object.entries(path))
  .flatMap(([method, { operationId }]) => (method === "head" ? [] : (operationId ?? [])));

async function openDocs({
  url = service.url,
  path = "",
  ...options
}: Partial<Parameters<typeof openPage>[0]> & { path?: string } = {}): Promise<TestPage> {
  const view = await openPage({ ...options, url: `${url}/docs${path}` });
  await view.page.getByRole("heading", { name: "Errors" }).waitFor();
  return view;
}

const findOperation = (page: Page, operationId: string): Locator =>
  page.locator(`.card[id$="/${operationId}"]`);

const pasteToken = (page: Page): Promise<void> =>
  page.getByRole("textbox", { name: "Token", exact: true }).fill(TEST_TOKEN);

async function execute(operation: Locator): Promise<{ status: string; body: string }> {
  await operation.getByRole("button", { name: "Send request" }).click();
  const live = operation.locator(".live");
  // All answers stay on the page, and a scan of it takes seconds: it is judged at the end.
  const stop = operation.getByRole("button", { name: "Stop" });
  await until("the request is over", async () => !(await stop.isVisible()));
  return {
    status: (await live.locator(".status").innerText()).trim(),
    body: await live.locator(".body").innerText(),
  };
}

const untilCopied = (user: User, text: string): Promise<void> =>
  user.untilSo(`navigator.clipboard.readText().then((text) => text.includes("${text}"))`);

describeInBrowser("the API reference", () => {
  // One page for several looks: each load takes the browser seconds.
  for (const [name, look] of looks)
    test(`opens the operation that the address names, and shows all others, every schema and error: ${name}`, async () => {
      const { page, user } = await openDocs({ path: "#/plants/removePlant", ...look });
      // The header does not cover it.
      await user.untilSo(
        `(() => {
          const { top } = document.querySelector("[id$='/removePlant']").getBoundingClientRect();
          const { bottom } = document.querySelector("header").getBoundingClientRect();
          return top >= bottom && top < innerHeight / 2;
        })()`,
      );
      if (look === phone) await page.getByText("Contents", { exact: true }).click();
      const text = await page.locator("main").innerText();
      const contents = await page.getByRole("navigation", { name: "Contents" }).innerText();
      for (const title of ["Authentication", "Paging", "Retries", "Batches", "Errors", "Webhooks"])
        expect(contents).toContain(title);
      expect(operationIds.length).toBeGreaterThan(8);
      const errors = ["1001 invalid_utf8", "4003 method_not_allowed", "5005 shutting_down"];
      const { schemas } = description.components;
      for (const shown of [...operationIds, ...errors, ...Object.keys(schemas)])
        expect(text).toContain(shown);

      for (const operationId of operationIds) {
        const operation = findOperation(page, operationId);
        expect(await operation.locator(".samples pre").innerText()).toContain(`'${service.url}/`);
        expect(await operation.locator(".responses").textContent()).toContain("5001 internal");
      }

      const create = findOperation(page, "createPlant");
      for (const [title, sign] of [
        ["JavaScript", "await fetch("],
        ["Python", "import requests"],
        ["curl", "curl "],
        ["Go", "http.NewRequest("],
      ] as const) {
        await create.getByRole("button", { name: title, exact: true }).click();
        const code = await create.locator(".samples pre").innerText();
        expect(code).toContain(sign);
        expect(code).toContain(`${service.url}/plants`);
        expect(code).toContain("Monstera deliciosa");
      }
      await create.getByRole("button", { name: "Copy", exact: true }).click();
      await untilCopied(user, "package main");

      // A language that was chosen once is chosen in every operation, and on the next visit.
      await page.reload();
      const read = findOperation(page, "readPlant");
      const code = read.locator(".samples pre");
      await code.waitFor();
      expect(await code.innerText()).toContain("package main");
      expect(await code.innerText()).toContain("Bearer YOUR_TOKEN");
      // Others may see the screen: only the copy has the token.
      await pasteToken(page);
      expect(await code.innerText()).toContain(`Bearer ${TEST_TOKEN.slice(0, 4)}••••••••`);
      expect(await page.locator("main").innerText()).not.toContain(TEST_TOKEN);
      await read.getByRole("button", { name: "Copy with your token", exact: true }).click();
      await untilCopied(user, `Bearer ${TEST_TOKEN}`);
      await read.getByText("Copied with your token").waitFor();
      // An operation without a token has none to copy.
      const probe = findOperation(page, "isAlive");
      expect(await probe.getByRole("button", { name: /^Cop/ }).innerText()).toBe("Copy");

      if (look === phone) await page.getByText("Contents", { exact: true }).click();
      await page.getByRole("link", { name: "List plants" }).click();
      await user.untilAt("/docs#/plants/listPlants");
      await page.getByText("Failures:").first().click();
      await user.see({ firstText: "5001 internal" });
    });

  for (const [name, look] of looks)
    test(`under a base path, sends requests to the last digit, shows answers and refusals, and forgets the token: ${name}`, async () => {
      await using own = await startService({ PLANTSTORE_BASE_PATH: "/shop" });
      const { page, announceFailure } = await openDocs({ url: own.url, ...look });
      const create = findOperation(page, "createPlant");
      announceFailure("/plants", 401);
      const refusal = { status: "401", body: expect.stringContaining('"error": 2001') };
      expect(await execute(create)).toEqual(refusal);

      await pasteToken(page);
      const read = findOperation(page, "readPlant");
      const ids = ["9223372036854775807", "9007199254740993", "-9223372036854775808"];
      for (const id of ids) {
        await create.getByLabel("Request body").fill(`{"id": ${id}, "name": "Exact"}`);
        expect((await execute(create)).status).toBe("200");
        const sample = await create.locator(".samples pre").innerText();
        for (const part of [`{"id": ${id}, "name"`, `${own.url}/plants`])
          expect(sample).toContain(part);
        expect(await own.findPlant(BigInt(id))).toMatchObject({ id: BigInt(id), name: "Exact" });

        await read.getByLabel(/^id /).fill(id);
        const body = `{\n  "id": ${id},\n  "name": "Exact"\n}`;
        expect(await execute(read)).toEqual({ status: "200", body });
      }

      const links = `[...document.querySelectorAll("header a")].map(({ href }) => href)`;
      const hrefs = [`${own.url}/`, `${own.url}/openapi.json`];
      expect(await page.evaluate<string[]>(links)).toEqual(hrefs);

      // A failure is red, and its whole message is within the card.
      const inspect = (): Promise<{ color: string; isCut: boolean }> =>
        page.evaluate(`(() => {
        const live = document.querySelector(".live");
        const { right } = live.closest(".card").getBoundingClientRect();
        const pre = live.querySelector(".body");
        return {
          color: getComputedStyle(live.querySelector(".status")).color,
          isCut: pre.scrollWidth > pre.clientWidth || pre.getBoundingClientRect().right > right,
        };
      })()`);
      const success = await inspect();
      announceFailure("/plants", 400);
      const body = `{"id": "${"x".repeat(300)}", "name": 1}`;
      await create.getByLabel("Request body").fill(body);
      expect((await execute(create)).status).toBe("400");
      const failure = await inspect();
      expect(failure.isCut).toBe(false);
      expect(failure.color).not.toBe(success.color);

      // A batch is an array or lines, and its results are shown as they came.
      const batch = findOperation(page, "createPlants");
      const array = await execute(batch);
      expect(array.status).toBe("200");
      const results = '[{"line":1,"status":200},{"line":2,"status":200}]';
      expect(array.body.replaceAll(/\s/g, "")).toBe(results);
      await batch.getByLabel("Content type").selectOption("application/x-ndjson");
      const lines = await execute(batch);
      expect(lines.status).toBe("200");
      const again = [1, 2].map((line) => `{"line":${line},"status":200,"replayed":true}`);
      expect(lines.body.trim().split("\n")).toEqual(again);

      const listed = await execute(findOperation(page, "listPlants"));
      for (const id of ids) expect(listed.body).toContain(`"id": ${id},`);

      // A token that is deleted is forgotten, and none is kept for the next visit.
      await page.getByRole("textbox", { name: "Token", exact: true }).fill("");
      const tags = findOperation(page, "listTags");
      expect(await tags.locator(".samples pre").innerText()).toContain("YOUR_TOKEN");
      announceFailure("/tags", 401);
      expect((await execute(tags)).status).toBe("401");
      const kept = "localStorage.length + sessionStorage.length + document.cookie.length";
      expect(await page.evaluate<number>(kept)).toBe(0);
    });

  // One page: each load takes the browser seconds.
  test("finds operations, errors and settings, marks the place in the page, and keeps the language of its samples alone", async () => {
    const { page, user } = await openDocs();
    const search = page.getByRole("combobox", { name: /^Search/ });
    for (const [words, title, address] of [
      ["remove plant", "Remove a plant", "/plants/removePlant"],
      ["3001", "3001 id_taken", "/errors/3001"],
      ["log_level", "PLANTSTORE_LOG_LEVEL", "/settings/PLANTSTORE_LOG_LEVEL"],
      ["plant.created", "A plant was created", "/webhooks/onPlantCreated"],
    ] as const) {
      await user.press("/", { element: "[role=combobox]:focus" });
      await page.keyboard.type(words);
      await page.getByRole("option", { name: title, selected: true }).waitFor();
      await user.press("Enter");
      await user.untilAt(`/docs#${address}`);
      await user.untilSo(
        `(() => {
          const { top } = document.querySelector(${JSON.stringify(`[id="${address}"]`)}).getBoundingClientRect();
          return top > 0 && top < innerHeight;
        })()`,
      );
    }
    await user.press("/");
    await page.keyboard.type("token");
    await user.press("ArrowDown", { element: '#find-option-1[aria-selected="true"]' });
    await user.press("Escape");
    expect(await search.inputValue()).toBe("");

    const contents = page.getByRole("navigation", { name: "Contents" });
    for (const title of ["Paging", "List plants", "Settings"]) {
      await contents.getByRole("link", { name: title }).click();
      await contents.locator("[aria-current]", { hasText: title }).waitFor();
      expect(await contents.locator("[aria-current]").count()).toBe(1);
    }

    await page.evaluate(`localStorage.setItem("plantstore.language /", '"de"')`);
    const operation = findOperation(page, "listPlants");
    await operation.getByRole("button", { name: "Python", exact: true }).click();
    await user.goTo(page.url());
    await operation.getByText("import requests").waitFor();
    const kept = `localStorage.getItem("plantstore.language /")`;
    expect(await page.evaluate<string>(kept)).toBe('"de"');
  });

  test("shows enums, defaults, limits, headers and examples, answers in sight, what is required, and the feed from now", async () => {
    const { page, user } = await openDocs();
    const list = findOperation(page, "listPlants");
    const order = list.getByLabel(/^order /);
    expect(await order.locator("option").allInnerTexts()).toEqual(["asc (default)", "desc"]);
    await order.selectOption("desc");
    expect(await list.locator(".samples pre").innerText()).toContain("/plants?order=desc'");
    await list.getByText("integer, query, 1 to 1000, default 100").waitFor();
    await list.getByText("text/csv", { exact: true }).last().waitFor();
    await list.getByText('2,"Ficus lyrata",').waitFor();

    const create = findOperation(page, "createPlant");
    await create.getByText("1 to 100 characters").waitFor();
    await create.getByLabel("Example", { exact: true }).selectOption("untagged");
    expect(await create.getByLabel("Request body").inputValue()).toContain("Ficus lyrata");
    await create.getByText("Failures:").click();
    // Every error of every failure has its example.
    const failures = await create.locator(".responses").innerText();
    const compact = failures.replaceAll(/\s/g, "");
    const codes = failures.match(/^\d{4} \w+(?=:)/gm) ?? [];
    expect(codes.length).toBeGreaterThan(15);
    for (const code of codes) expect(compact).toContain(`{"error":${code.slice(0, 4)},`);

    const text = await page.locator("main").innerText();
    const { components, webhooks } = description;
    const variables = Object.values(settings).map(({ env }) => env);
    for (const shown of [...Object.keys({ ...components.headers, ...webhooks }), ...variables])
      expect(text).toContain(shown);
    const webhook = page.locator('[id="/schemas/Webhook"]');
    await webhook.getByText("string: active, paused").waitFor();
    await webhook.getByText("durationMs").waitFor();
    await list.getByRole("link", { name: "StoredPlant" }).first().click();
    await user.untilAt("/docs#/schemas/StoredPlant");

    // An answer opens below the button.
    await pasteToken(page);
    expect((await execute(list)).status).toBe("200");
    const distance = await page.evaluate<number>(`(() => {
      const card = document.querySelector("[id$='/listPlants']");
      const button = card.querySelector("[type=submit]").getBoundingClientRect();
      const answer = card.querySelector(".live").getBoundingClientRect();
      return Math.abs(answer.left - button.left) + answer.top - button.bottom;
    })()`);
    expect(distance).toBeWithin(0, 60);
    await user.untilSo(
      `document.querySelector("[id$='/listPlants'] .live .status").getBoundingClientRect().bottom < innerHeight`,
    );

    await service.create('{"id":504,"name":"Lily"}');
    const sent: string[] = [];
    page.on("request", (request) => sent.push(request.url()));
    const replace = findOperation(page, "replacePlant");
    const field = replace.getByLabel(/^id /);
    await field.fill(" ");
    await replace.getByLabel("Request body").fill("");
    await replace.getByRole("button", { name: "Send request" }).click();
    await user.untilSo("document.activeElement.id === 'replacePlant-id'");
    expect(await replace.getByText("Required: enter a value.").count()).toBe(2);
    await field.fill("504");
    await replace.getByRole("button", { name: "Send request" }).click();
    await user.untilSo("document.activeElement.id === 'replacePlant-body'");
    expect(sent).toEqual([]);
    await replace.getByLabel("Request body").fill('{"name": "Rose"}');
    expect(await execute(replace)).toMatchObject({ status: "200" });
    expect(await replace.getByText("Required: enter a value.").count()).toBe(0);
    expect(sent).toEqual([`${service.url}/plants/504`]);

    // The feed from now, and with the history.
    await service.create('{"id":501,"name":"Old"}');
    const changes = findOperation(page, "listChanges");
    const sample = changes.locator(".samples pre");
    const from = changes.getByLabel(/^from /);
    await changes.getByLabel("Accept").selectOption("text/event-stream");
    expect(await sample.innerText()).toContain("curl -N ");
    expect(await sample.innerText()).toMatch(/\/changes\?from=\d{4}-\d\d-\d\dT/);

    await changes.getByRole("button", { name: "Send request" }).click();
    const answer = changes.locator(".live .body");
    const follow = async (id: number, name: string): Promise<void> => {
      await service.create(JSON.stringify({ id, name }));
      await answer.filter({ hasText: name }).waitFor();
    };
    await changes.locator(".live .status", { hasText: "200" }).waitFor();
    await follow(502, "Fresh");
    expect(await answer.innerText()).not.toContain("Old");

    await changes
      .getByLabel("Example", { exact: true })
      .selectOption({ label: "the history, then new changes" });
    expect(await sample.innerText()).toContain("/changes'");
    await changes.getByRole("button", { name: "Send request" }).click();
    await follow(503, "Fresher");
    expect(await answer.innerText()).toContain("Old");
    await changes.getByRole("button", { name: "Stop" }).click();

    // Only the start that the page has set is taken back.
    await changes.getByLabel("Accept").selectOption({ index: 0 });
    await changes.getByLabel("Accept").selectOption("text/event-stream");
    await changes.getByLabel("Accept").selectOption({ index: 0 });
    expect(await from.inputValue()).toBe("");
    await from.fill("7");
    await changes.getByLabel("Accept").selectOption("text/event-stream");
    expect(await sample.innerText()).toContain("/changes?from=7'");
  });
});

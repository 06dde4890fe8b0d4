/** Importing in the console: files as they come, understood as the command line understands them. */

import { expect } from "bun:test";
import { rm } from "node:fs/promises";
import type { Page, Route } from "playwright-core";
import { formatNdjson } from "../../src/domain/plant.ts";
import { change, describeInBrowser, startJourneys, WITHOUT_PREFETCH } from "../support/browser.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { send, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const { it, test } = await startJourneys();

/** The counts of all figures, once the comparison or the import is over. */
async function readFigures(page: Page): Promise<number[]> {
  await page.locator(".figures").waitFor();
  const counts = await page.locator(".figures dd").allInnerTexts();
  return counts.map(Number);
}

/** What a comparison sends, and what an import sends. */
const COMPARED = /\/plants\/batch\?.*dry_run=true/;
const SENT = /\/plants\/batch\?(?!.*dry_run)/;

const utf16 = (text: string): Buffer => Buffer.from(`\ufeff${text}`, "utf16le");
const latin1 = (text: string): Buffer => Buffer.from(text, "latin1");

describeInBrowser("an import", () => {
  it("is undone after a preview, but for what was changed since", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    await service.create('{"id":5,"name":"Mint"}');
    await user.chooseFile("wrong.csv", "id,name\n6,Basil\n7,Thyme\n5,Mint\n");
    await user.click("Start import", { text: "Import complete" });
    await change(service, 7, { name: "Lemon thyme" });
    await user.click("Undo this import");
    const inDialog = user.within(page.getByRole("dialog", { name: "Undo “wrong.csv”?" }));
    await inDialog.see({ text: "1 plant will be as before. 1 changed since", cell: "Basil" });
    await inDialog.click("Undo 1 plant");
    await user.see({ firstText: /^Undone: 1 plant\. 1 skipped\./ });
    expect((await service.readPlants()).map(({ name }) => name)).toEqual(["Mint", "Lemon thyme"]);
  });

  it("is listed with its person and counts, is undone there, and is not buried by creates", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    await user.chooseFile("herbs.csv", "id,name\n301,Basil\n302,Thyme\nx,Bad\n");
    await user.click("Start import", { text: "was refused" });
    // What became of the rows, as one bar, and where the refused ones are.
    const bar = page.getByRole("img", { name: /^Rows of the file: Added 2.*Refused 1$/ });
    await bar.waitFor();
    await page.getByRole("img", { name: "Refused rows: 1 in lines 4 to 4" }).waitFor();
    for (let id = 310; id < 330; id++) await service.create(`{"id":${id},"name":"By hand"}`);
    await user.click("Another file");
    const row = page.getByRole("row").filter({ hasText: "herbs.csv" });
    await user.within(row).see({ text: ["2 added", "PLANTSTORE_TOKEN"] });
    await user.click("Undo herbs.csv", { dialog: "Undo “herbs.csv”?" });
    await user.click("Undo 2 plants", { toast: "Undone: 2 plants." });
    await row.getByText("Undone").waitFor();
    expect(await service.findPlant(301n)).toBeUndefined();
    // The page of the batch knows it too.
    await row.getByRole("link", { name: "herbs.csv" }).click();
    await user.see({ text: "Nothing of this is left to undo." });
    for (let id = 310; id < 330; id++) await send(service, "DELETE", `/plants/${id}`);
  });

  it("of a spreadsheet maps its columns, shows its rows, and keeps what was refused", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    await user.chooseFile(
      "Stock.csv",
      `\ufeffNr;Plant;Type;Pot\r\n1;Basil;herb;9\r\n2;"Rosa ""Alba""";;12\r\n3;'=Sage;"";9\r\n` +
        `9007199254740993;Monstera;tropical;17\r\nx;Broken;herb;9\r\n1;Other;herb;9\r\n`,
    );
    expect(await page.getByLabel("Separator").inputValue()).toBe(";");
    for (const [label, heading] of Object.entries({ Id: "Nr", Name: "Plant", Tag: "Type" }))
      expect(await user.field(label).inputValue()).toBe(heading);
    await user.see({ cell: ["9007199254740993", "=Sage"] });
    await user.see({ firstCell: 'The id is not a whole number: "x".' });

    await user.click("Start import", { text: "2 of 6 rows were refused" });
    expect(await service.findPlant(2n)).toMatchObject({ name: 'Rosa "Alba"', tag: null });
    expect(await service.findPlant(3n)).toMatchObject({ name: "=Sage", tag: "" });
    expect(await service.findPlant(9007199254740993n)).toMatchObject({ name: "Monstera" });
    const saved = await user.saveFile(page.getByRole("button", { name: "Download all 2" }));
    expect(saved.name).toBe("refused.csv");
    expect(saved.text).toBe(
      '\ufeffline;reason;Nr;Plant;Type;Pot\n6;"The id is not a whole number: ""x"".";x;Broken;herb;9\n' +
        '7;"Two rows have this id: 2 and 7. The first one counts.";1;Other;herb;9\n',
    );

    // It can be corrected and imported as it is.
    await user.chooseAnother("refused.csv", saved.text.replace("x;Broken", "6;Mended"));
    expect(await user.field("Id").inputValue()).toBe("Nr");
    // The other row differs from what the first import stored.
    await user.see({ figure: "Different, to keep 1" });
    await user.click("Start import", { text: "1 differs from the store, and was not stored." });
    expect(await service.findPlant(6n)).toMatchObject({ name: "Mended", tag: "herb" });
  });

  for (const isUpdating of [false, true])
    it(`foresees its figures, ${isUpdating ? "and updates what has not changed since" : "without updates"}`, async (visit) => {
      const { page, user, service } = await visit.open({ at: "#/import" });
      const first = isUpdating ? 920 : 910;
      const idOf = (at: number): bigint => BigInt(first + at);
      for (const [at, tag] of [[0], [1], [2], [6, "a"]] as const)
        await service.store.createPlant({ id: idOf(at), name: `Old ${at}`, tag });
      // The first digit is added to the first id.
      const rows =
        "0,Old 0|0,New 0|1,New 1|1,New 1|1,Newer 1|1,Old 1|3,New 3|3,New 3|3,Newer 3|4,|4,   |5, New 5|6,New 6";
      const texts = rows.split("|").map((row) => `${first + Number(row[0])}${row.slice(1)}\n`);
      await user.chooseFile("foreseen.csv", `id,name\n${texts.join("")}x,y\n`);
      await user.see({ text: "The first rows, as they will be stored" });
      if (isUpdating) await page.getByLabel("Change the 2 plants that are different").check();
      const foreseen = await readFigures(page);
      expect(foreseen).toEqual(isUpdating ? [2, 3, 2, 7] : [2, 2, 3, 7]);
      await user.see({ cell: ["Old 6 a", "New 6 no tag"] });
      const shown = page.getByRole("region", { name: "Preview" }).locator("tbody tr");
      const [there, refuse] = ["Already there", "To refuse"];
      const keep = "Different, to keep";
      const differing = isUpdating ? ["To change", there] : [keep, keep];
      const outcomes = [there, refuse, ...differing, refuse, refuse, "To add", there];
      expect((await shown.allInnerTexts()).map((row) => row.split("\t")[1])).toEqual(outcomes);
      // Another view in between changes nothing.
      await user.follow("Changes");
      await user.follow("Import");
      if (isUpdating)
        await service.store.replacePlant({ id: idOf(6), name: "Changed since", tag: "a" }, {});
      await user.click("Start import", { text: / of 14 rows were refused/ });
      expect(await readFigures(page)).toEqual(isUpdating ? [2, 3, 1, 8] : foreseen);
      if (isUpdating) await user.see({ cell: /was changed since it was compared/ });
      for (const [at, name] of [
        [0, "Old 0"],
        [1, isUpdating ? "New 1" : "Old 1"],
        [3, "New 3"],
        [5, " New 5"],
        [6, isUpdating ? "Changed since" : "Old 6"],
      ] as const)
        expect(await service.findPlant(idOf(at))).toMatchObject({ name });
      expect(await service.findPlant(idOf(4))).toBeUndefined();
    });

  test("makes the store match the file, after a preview of what it removes, and is undone whole", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    await user.holdFeed();
    const before = await service.readPlants();
    for (const [id, name] of [
      [951n, "Same"],
      [952n, "Before"],
      [953n, "Gone"],
      [954n, "Changed since"],
    ] as const)
      await service.store.createPlant({ id, name, tag: undefined });
    const match = page.getByLabel(/^Make the store match this file/);
    await user.chooseFile("bad.csv", "id,name\n951,Same\nx,y\n", { figure: "To refuse 1" });
    expect(await match.isDisabled()).toBe(true);
    const others = before.map(
      ({ id, name, tag }) =>
        `${id},"${name.replaceAll('"', '""')}",${tag === null ? "" : `"${tag}"`}\n`,
    );
    const rows = `951,Same,\n952,After,\n955,New,\n${others.join("")}`;
    await user.chooseAnother("whole.csv", `id,name,tag\n${rows}`, { figure: "To add 1" });
    await match.check();
    await user.see({
      figure: ["To change 1", "To delete 2"],
      cell: ["Gone no tag", "Changed since no tag"],
    });
    await service.store.replacePlant({ id: 954n, name: "By others", tag: undefined }, {});
    await user.click("Start import and delete 2 plants", { figure: ["Deleted 1", "Changed 1"] });
    await user.see({ cell: /was changed since it was compared/ });
    const names = (await service.readPlants()).filter(({ id }) => id > 950n && id < 956n);
    expect(names.map(({ name }) => name)).toEqual(["Same", "After", "By others", "New"]);
    await user.click(["Undo this import", "Undo 3 plants"]);
    await user.see({ toast: "Undone: 3 plants." });
    expect(await service.findPlant(953n)).toMatchObject({ name: "Gone" });
    expect(await service.findPlant(952n)).toMatchObject({ name: "Before" });
    expect(await service.findPlant(955n)).toBeUndefined();
  });

  test("that makes the store match the file deletes and counts no plant that others change meanwhile", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    const others = await service.readPlants();
    for (const id of [961, 962, 963]) await service.create(`{"id":${id},"name":"Gone"}`);
    const plants = others.map(({ id, name, tag }) => ({ id, name, tag: tag ?? undefined }));
    const file = formatNdjson(plants);
    await user.chooseFile("whole.ndjson", file, { text: "Make the store match" });
    await page.getByLabel(/^Make the store match this file/).check();
    await user.see({ figure: "To delete 3", button: "Start import and delete 3 plants" });
    await change(service, 962);
    await change(service, 963, { name: "Theirs" });
    await user.see({ figure: "To delete 1" });
    await user.click("Start import and delete 1 plant", { figure: "Deleted 1" });
    expect(await service.findPlant(961n)).toBeUndefined();
    expect(await service.findPlant(963n)).toMatchObject({ name: "Theirs" });
  });

  test("asks about rows without a name", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    await user.chooseFile("nameless.csv", "id,name\n941,\n942,Mint\n");
    await user.see({ firstCell: "The name is missing.", figure: "To add 1" });
    await page.getByLabel("Import rows without a name too").check();
    await user.see({ figure: "To add 2" });
    await user.click("Start import", { text: "Import complete" });
    expect(await service.findPlant(941n)).toMatchObject({ name: "" });
  });

  it("that is cancelled counts what is stored, or says that it does not know", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    const cancel = async (file: string, answer: (route: Route) => unknown): Promise<void> => {
      const sent = Promise.withResolvers<void>();
      const cancelled = Promise.withResolvers<void>();
      await page.context().route(SENT, async (route) => {
        sent.resolve();
        await cancelled.promise;
        await answer(route);
      });
      await user.chooseFile("cancelled.ndjson", file);
      await user.click("Start import");
      await sent.promise;
      await user.click("Cancel");
      cancelled.resolve();
    };
    await cancel('{"id":63,"name":"Box"}\n{"id":64,"name":"Yew"}\n', (route) => route.fallback());
    await user.see({ text: /Import (cancelled|complete)/, figure: "Added 2" });
    await user.click("Another file");

    await cancel('{"id":62,"name":"Box"}\nnone\n', () => undefined);
    await user.see({ text: ["Import cancelled", "more plants may be stored"] });
    await page.context().unroute(SENT);
    await user.click("Import again", { text: "1 of 2 rows was refused" });
    await user.see({ text: "All others are stored." });
    expect(await service.findPlant(62n)).toMatchObject({ name: "Box" });
  });

  it("that runs is named before its person signs out", async (visit) => {
    const { page, user } = await visit.open({ at: "#/import" });
    await page.context().route(SENT, () => undefined);
    await user.chooseFile("held.ndjson", '{"id":65,"name":"Box"}\n');
    await user.click("Start import");
    const leave = () =>
      user.click([/Signed in as/, "Sign out"], { text: "The import of held.ndjson stops." });
    await leave();
    await user.press("Escape", { button: "Cancel" });
    await leave();
    const asked = user.within(page.getByRole("dialog", { name: "Sign out?" }));
    await asked.click("Sign out");
    await user.see({ heading: "Sign in" });
  });

  it("of any format and encoding stores what is new, recognises what is there, and names what it assumed", async (visit) => {
    const { user, service } = await visit.open({ at: "#/import" });
    const lines = '{"id":21,"name":"Fern"}\n{"id":22,"name":"Moss","tag":"green"}\n';
    for (const [file, content, id, name, added, said] of [
      ["lines.ndjson", lines, 22n, "Moss", "2", []],
      ["array.json", `[${lines.trim().replace("\n", ",")}]`, 22n, "Moss", "0", []],
      ["table.tsv", "id\tname\ttag\n22\tMoss\tgreen\n", 22n, "Moss", "0", []],
      ["excel.csv", utf16("id\tname\n81\tGrüner Tee\n"), 81n, "Grüner Tee", "1", "Read as UTF-16"],
      ["excel.csv", latin1("sep=;\nid;name\n82;Blüte\n"), 82n, "Blüte", "1", "Windows-1252"],
    ] as const) {
      await user.chooseFile(file, content, { cell: name, text: said });
      await user.click("Start import", { text: "Import complete", figure: `Added ${added}` });
      expect(await service.findPlant(id)).toMatchObject({ name });
      await user.click("Another file");
    }
    expect(await service.findPlant(22n)).toMatchObject({ tag: "green" });

    // A spreadsheet has shortened these ids.
    await user.chooseFile("barcodes.csv", "id,name\n4.00638E+12,Rose\n", { cell: /as text/ });
    await user.click("Start import", { text: "Nothing was stored." });
    expect(await service.findPlant(4_006_380_000_000n)).toBeUndefined();
  });

  it("asks for a column that it cannot guess, and reads a file another way", async (visit) => {
    const { page, user } = await visit.open({ at: "#/import" });
    await user.chooseFile("odd.csv", "code,what\n31,Heather\n");
    await user.see({ firstText: "Which column is it?" });
    expect(await page.getByRole("button", { name: "Start import" }).isDisabled()).toBe(true);
    await user.field("Id").selectOption("code");
    await user.field("Name").selectOption("what");
    await user.see({ cell: "Heather" });
    await page.getByLabel("Separator").selectOption(";");
    await user.see({ columnheader: "code,what" });
    await user.chooseAnother("cut.json", '[{"id":31,', { text: "The file can't be read this way" });
  });

  test("takes a file that is dropped anywhere, and rows that are pasted", async (visit) => {
    // The import page is not loaded yet.
    const { page, user, service } = await visit.open({
      at: "#/plants",
      prelude: WITHOUT_PREFETCH,
    });
    await page.evaluate(`
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["id,name\\n71,Dropped\\n"], "dropped.csv"));
      for (const type of ["dragover", "drop"])
        document.querySelector("header").dispatchEvent(
          new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer }));`);
    await user.see({ cell: "Dropped" });
    expect(page.url()).toEndWith("#/import");

    await user.goTo("#/plants");
    await page.evaluate(`navigator.clipboard.writeText("73\\tPasted\\tfern\\n74\\tMore\\t\\n")`);
    await user.press("ControlOrMeta+v", { cell: "Pasted" });
    await user.click("Start import", { text: "Import complete" });
    expect(await service.findPlant(73n)).toMatchObject({ name: "Pasted" });
  });

  test("of thirty thousand rows leaves the page responsive, and can be watched from elsewhere", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    const rows = Array.from({ length: 30_000 }, (_, index) =>
      index % 1000 === 999 ? `none,Bad ${index},bulk` : `${1_000_000 + index},Plant ${index},bulk`,
    );
    const seen = Promise.withResolvers<void>();
    let pages = 0;
    await page.context().route(COMPARED, async (route) => {
      if (++pages > 1) await seen.promise;
      await route.fallback();
    });
    await user.chooseFile("thirty-thousand.csv", `id,name,tag\n${rows.join("\n")}\n`);
    const comparing = page.getByRole("progressbar", { name: "Comparing with the store" });
    await comparing.and(page.locator("[value^='0.']")).waitFor();
    seen.resolve();
    await page.context().unroute(COMPARED);
    await user.see({ figure: "To add 29,970" });
    await page.evaluate(`
      window.longestMs = 0;
      window.startedAtMs = performance.now();
      let last = window.startedAtMs;
      const watch = () => {
        const now = performance.now();
        window.longestMs = Math.max(window.longestMs, now - last);
        last = now;
        requestAnimationFrame(watch);
      };
      requestAnimationFrame(watch);`);
    // Waiting for a selector scans nothing: a scan would keep the page busy.
    await user.click("Start import");
    await page.waitForSelector("text=/rows per second/");
    await page.getByRole("link", { name: "Plants", exact: true }).click();
    await page.waitForSelector("h1:text('Plants')");
    await user.follow(/^Import/);
    await page.waitForSelector("text=30 of 30,000 rows were refused");
    // On a busy machine both are longer.
    const isResponsive = "window.longestMs < (performance.now() - window.startedAtMs) / 4";
    expect(await page.evaluate<boolean>(isResponsive)).toBe(true);
    expect(await service.findPlant(1_029_998n)).toMatchObject({ name: "Plant 29998" });
  });

  it("resumes after lost answers and a busy store", async (visit) => {
    const { page, user, service, announceFailure } = await visit.open({ at: "#/import" });
    announceFailure("/plants/batch", "failed", 503);
    const busy = { status: 503, json: { error: 5002, message: "busy" } };
    let count = 0;
    await page.context().route(SENT, async (route) => {
      count++;
      if (count > 1) return count === 2 ? route.fulfill(busy) : route.fallback();
      await route.fetch();
      return route.abort("connectionreset");
    });
    // It is shown for as long as the next try is waited for, which may be a moment.
    await page.evaluate(`new MutationObserver(() => {
        window.isRetrySeen ||= document.body.innerText.includes("Trying again; nothing is lost");
      }).observe(document.body, { subtree: true, childList: true, characterData: true })`);
    await user.chooseFile("again.ndjson", '{"id":41,"name":"Oak"}\n{"id":42,"name":"Ash"}\n');
    await user.click("Start import", { text: "Import complete" });
    expect(await page.evaluate<boolean>("window.isRetrySeen")).toBe(true);
    expect(count).toBeGreaterThanOrEqual(3);
    expect(await service.findPlant(42n)).toMatchObject({ name: "Ash" });
  });

  it("is compared to its end after a lost connection, a busy store and a throttled token", async (visit) => {
    const { page, user, service, announceFailure } = await visit.open({ at: "#/import" });
    announceFailure("dry_run=true", "failed", 503, 429);
    const answers = [
      { status: 503, json: { error: 5002, message: "busy" } },
      {
        status: 429,
        json: { error: 4010, message: "slowly" },
        headers: { "retry-after": "1" },
      },
    ];
    let count = 0;
    const gate = Promise.withResolvers<void>();
    await page.context().route(COMPARED, async (route) => {
      const answer = answers[count++ - 1];
      if (count === 1) return route.abort("connectionreset");
      if (answer !== undefined) return route.fulfill(answer);
      await gate.promise;
      return route.fallback();
    });
    await user.chooseFile("again.ndjson", '{"id":45,"name":"Oak"}\n{"id":46,"name":"Ash"}\n');
    await user.see({ text: "Trying again; nothing is lost" });
    gate.resolve();
    await user.see({ figure: "To add 2" });
    expect(count).toBe(4);
    expect(await service.findPlant(45n)).toBeUndefined();
  });

  it("stops where its token ends, and is begun again from there", async (visit) => {
    const token = await visit.createToken({ name: "brief" });
    const { page, user, service, announceFailure } = await visit.open({ at: "#/import", token });
    // Without a feed, the import is the first to hear of it, and then the list.
    await page.route("**/changes*", (route) => route.fulfill({ status: 410 }));
    announceFailure("/changes", 410);
    await page.reload();
    announceFailure("/plants/batch", 401);
    announceFailure("/plants", 401);
    await user.chooseFile("later.ndjson", '{"id":51,"name":"Elm"}\n', { cell: "Elm" });
    await visit.revoke("brief");
    // The service forgets what it knows of a token after a while.
    const headers = { authorization: `Bearer ${token}` };
    const isRefused = async () => !(await send(service, "GET", "/token", { headers })).ok;
    await until("the token is refused", isRefused);
    await user.click("Start import", { heading: "Sign in" });
    await user.signIn(TEST_TOKEN);
    await user.click("Import again", { text: "Import complete" });
    expect(await service.findPlant(51n)).toMatchObject({ name: "Elm" });
  });

  it("of a file that is gone before it starts ends as failed, and another one is taken", async (visit) => {
    using folder = makeTemporaryFolder();
    const [path, text] = [`${folder.path}/gone.csv`, "id,name\n61,Yew\n"];
    const { page, user } = await visit.open({ at: "#/import" });
    // Chosen from a disk, as staff do.
    await Bun.write(path, text);
    await page.locator("#import-file").setInputFiles(path);
    await user.see({ cell: "Yew" });
    await rm(path);
    await user.click("Start import", { text: "The file can no longer be read." });
    await user.chooseAnother("another.csv", text);
    await user.click("Start import", { text: /^1 row in / });
  });

  it("that runs is seen on every page and in a second tab, which hear of its end", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    const release = await user.hold(SENT);
    const stranger = await visit.createToken({ name: "stranger" });
    const [second, third] = [await user.openTab(service.url), await user.openTab(service.url)];
    await second.signIn(TEST_TOKEN);
    await third.signIn(stranger);
    await user.chooseFile("shared.ndjson", '{"id":91,"name":"Box"}\nnone\n');
    await user.click("Start import");
    for (const link of ["Plants", "Changes", "Tokens"]) {
      await page.getByRole("link", { name: link, exact: true }).click();
      await user.see({ progressbar: "Import of shared.ndjson" });
    }
    await second.see({ text: ["Importing shared.ndjson…", "in another tab"] });
    release();
    const end = "The import of shared.ndjson ended: 1 added, 1 refused.";
    await user.see({ toast: end });
    await second.see({ toast: end });
    await second.page.getByText("Importing shared.ndjson…").waitFor({ state: "detached" });
    expect(await third.page.locator(".toast, .running").count()).toBe(0);
    await user.within(user.toast(end)).click("See");
    await user.see({ text: "1 of 2 rows was refused" });

    // A tab that is closed says so. Nothing is lost: the file can be imported again.
    await user.click("Another file");
    await page.context().unrouteAll();
    await page.context().route(SENT, () => undefined);
    await user.chooseFile("closed.ndjson", '{"id":92,"name":"Box"}\n');
    await user.click("Start import");
    await second.see({ text: "Importing closed.ndjson…" });
    page.once("dialog", (dialog) => void dialog.accept());
    await page.goto("about:blank");
    await second.see({ toast: "stopped: its tab was closed" });
    await page.goto(service.url);
    await user.see({ heading: "Overview" });
  });
});

/** The harness itself: each way in which a page can be at fault does fail its test. */

import { afterAll, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { describeInBrowser, openPage, phone, type TestPage } from "../support/browser.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { until } from "../support/until.ts";

const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' http://127.0.0.1:1";
const pages: Readonly<Record<string, string>> = {
  "/": `<main><h1>Plants</h1></main>`,
  "/inline": `<main><h1 style="color: red">Plants</h1></main>`,
  "/script": `<main><h1>Plants</h1></main><script src="/page.js"></script>`,
  "/small": `<link rel="stylesheet" href="/small.css"><main><h1>Plants</h1><button class="low">a</button>
    <button class="large">b</button></main>`,
};
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch: (request) => {
    const { pathname } = new URL(request.url);
    if (pathname === "/page.js")
      return new Response("console.log('loaded')", {
        headers: { "content-type": "text/javascript" },
      });
    if (pathname === "/small.css")
      return new Response(
        "button { display: block; width: 44px; height: 44px } .low { width: 30px } h1 { width: 900px }",
        {
          headers: { "content-type": "text/css" },
        },
      );
    const body = pages[pathname];
    if (body === undefined) return new Response("{}", { status: 404 });
    return new Response(
      `<!doctype html><html lang="en"><head><title>Plants</title><meta name="viewport" content="width=device-width"></head><body>${body}</body></html>`,
      { headers: { "content-type": "text/html", "content-security-policy": policy } },
    );
  },
});
const at = (path: string): { readonly url: string } => ({ url: new URL(path, server.url).href });

afterAll(() => server.stop(true));

/** The browser reports some faults a little later. */
async function expectFault(view: TestPage, fault: string): Promise<void> {
  let faults = "";
  await until(`the page is at fault: ${fault}`, async () => {
    faults += (await view.takeFaults()).join("\n");
    return faults.includes(fault);
  });
}

describeInBrowser("a page", () => {
  test("that does nothing wrong is at no fault", async () => {
    await using view = await openPage(at("/script"));
    expect(await view.page.title()).toBe("Plants");
    expect(await view.takeFaults()).toEqual([]);
  });

  const faulty: readonly (readonly [string, string, string])[] = [
    ["writes an error to the console", `console.error("broken")`, "console error: broken"],
    ["writes a warning to the console", `console.warn("odd")`, "console warning: odd"],
    ["throws", `void setTimeout(() => { throw new Error("thrown") })`, "uncaught: Error: thrown"],
    ["rejects", `void Promise.reject(new Error("rejected"))`, "uncaught: Error: rejected"],
    ["asks another origin", `fetch("http://127.0.0.1:1/").catch(() => 0)`, "another origin"],
    ["gets no answer", `fetch("http://127.0.0.1:1/").catch(() => 0)`, "ERR_"],
    ["is answered by an error", `fetch("/nowhere").then(() => 0)`, "/nowhere: answered 404"],
    [
      "adds a style that its policy forbids",
      `document.body.setAttribute("style", "color: red")`,
      "content security policy: style-src-attr inline",
    ],
    [
      "sends a request that its policy forbids",
      `fetch("http://127.0.0.1:2/").catch(() => 0)`,
      "content security policy: connect-src http://127.0.0.1:2/",
    ],
    [
      "runs a script that its policy forbids",
      `document.body.append(Object.assign(document.createElement("script"), { text: "0" }))`,
      "content security policy: script-src-elem inline",
    ],
  ];
  test.each(faulty)("that %s is at fault", async (_does, expression, fault) => {
    await using view = await openPage(at("/"));
    await view.page.evaluate(expression);
    await expectFault(view, fault);
  });

  test("that comes with a forbidden style is at fault", async () => {
    await using view = await openPage(at("/inline"));
    await expectFault(view, "content security policy: style-src-attr");
  });

  test("is not at fault for a failure that was announced, and is for another", async () => {
    await using view = await openPage(at("/"));
    view.announceFailure("/nowhere", 404);
    await view.page.evaluate(`fetch("/nowhere").then(() => 0)`);
    expect(await view.takeFaults()).toEqual([]);
    await view.page.evaluate(`fetch("/elsewhere").then(() => 0)`);
    await expectFault(view, "/elsewhere: answered 404");
  });

  test("that is not accessible is at fault once what it lacks was waited for, and is told where", async () => {
    await using view = await openPage(at("/"));
    await view.page.getByRole("heading").waitFor();
    expect(await view.takeFaults()).toEqual([]);
    await view.page.evaluate(`document.querySelector("main").innerHTML += "<input id='name'>"`);
    await view.page.locator("#name").waitFor();
    await view.page.evaluate(`document.querySelector("#name").remove()`);
    expect((await view.takeFaults()).join("\n")).toMatch(/label \(critical\).*\n.*at #name/);
  });

  test("that a phone has to scroll sideways, or whose buttons are too small for it, is at fault", async () => {
    await using view = await openPage({ ...at("/small"), ...phone });
    const faults = (await view.takeFaults()).join("\n");
    expect(faults).toContain("pixels wider than the window");
    expect(faults).toMatch(/too small for a finger: 30 x 44: <button class="low"/);
    expect(faults).not.toContain("large");
    // It is too wide in every state, also in one without a new part.
    expect((await view.takeFaults()).join()).toContain("pixels wider than the window");
    await view.page.evaluate(`document.querySelector("h1").remove()`);
  });

  test("has nothing that another page stored or held back", async () => {
    const look = { colorScheme: "dark", viewport: { width: 700, height: 700 } } as const;
    {
      await using view = await openPage({ ...at("/"), ...look, prelude: "window.before = 1" });
      await view.page.route("**", (route) => route.abort());
      await view.page.evaluate(`localStorage.a = sessionStorage.a = window.name = "kept";
        addEventListener("pagehide", () => sessionStorage.setItem("late", "kept"))`);
    }
    await using view = await openPage({ ...at("/"), ...look });
    const found = `[localStorage.length, sessionStorage.length, window.name, typeof before]`;
    expect(await view.page.evaluate<unknown[]>(found)).toEqual([0, 0, "", "undefined"]);
  });

  test("has the colours, the size and the motion that the test asks for", async () => {
    await using view = await openPage({
      ...at("/"),
      colorScheme: "dark",
      viewport: { width: 390, height: 700 },
      reducedMotion: "no-preference",
    });
    const matches = (query: string): Promise<boolean> =>
      view.page.evaluate<boolean>(`matchMedia("${query}").matches`);
    expect(await matches("(prefers-color-scheme: dark)")).toBe(true);
    expect(await matches("(width: 390px)")).toBe(true);
    expect(await matches("(prefers-reduced-motion: reduce)")).toBe(false);
  });
});

describeInBrowser("a test file", () => {
  const source = `
    import { test } from "bun:test";
    import { describeInBrowser, openPage, phone } from "${import.meta.dir}/../support/browser.ts";
    describeInBrowser("faulty", () => {
      test("warns", async () => {
        await using view = await openPage({ url: "${server.url.href}" });
        await view.page.evaluate('console.warn("odd")');
      });
      test("announces what never comes", async () => {
        await using view = await openPage({ url: "${server.url.href}" });
        view.announceFailure("/nowhere", 404);
      });
      test("waits for what never comes", async () => {
        await using view = await openPage({ url: "${server.url.href}" });
        await view.page.evaluate('console.log("so far")');
        await view.page.getByText("Oak").waitFor({ timeout: 10 });
      });
    });`;

  test("fails because of the faults of its pages, and does not print them", async () => {
    using folder = makeTemporaryFolder();
    const path = join(folder.path, "faulty.test.ts");
    await Bun.write(path, source);
    const command = [process.execPath, "test", "--timeout", "300000", path];
    const child = Bun.spawn(command, { stdout: "ignore", stderr: "pipe" });
    const stderr = await new Response(child.stderr).text();
    expect(await child.exited).toBe(1);
    expect(stderr).toContain("console warning: odd");
    expect(stderr).toContain("announced, but never came: /nowhere 404");
    expect(stderr).toMatch(/The page at .* shows:\nPlants\n[^]*log: so far/);
    rmSync(/\((\S+\.png)\)/.exec(stderr)?.[1] ?? "no screenshot");
    expect(stderr).toContain(" 3 fail");
  });
});

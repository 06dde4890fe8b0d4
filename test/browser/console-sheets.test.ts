/** Spreadsheets in the console: workbooks, titles, headings in six languages, and what is no spreadsheet. */

import { expect } from "bun:test";
import { openWorkbook } from "../../src/format/workbook.ts";
import { describeInBrowser, startJourneys } from "../support/browser.ts";
import { chooseFile, figure, saveFile, start } from "../support/steps.ts";
import { makeWorkbook, rowsOf } from "../support/workbook.ts";

const { it, test } = await startJourneys();

const latin1 = (text: string): Buffer => Buffer.from(text, "latin1");

describeInBrowser("an import", () => {
  it("of a workbook reads the sheet that is chosen, and refuses what Excel has rounded", async (visit) => {
    const { page, service } = await visit.open({ at: "#/import" });
    await chooseFile(page, "stock.xlsx", "PK\u0003\u0004 and so on");
    await page.getByText("The file is damaged, or is not a workbook (.xlsx).").waitFor();
    expect(await page.getByRole("button", { name: "Start import" }).isDisabled()).toBe(true);
    await page.getByRole("button", { name: "Another file" }).click();
    const sheets = {
      Notes: rowsOf([["Ask", "Anna"]]),
      Stock: rowsOf([
        ["Nr", "Plant", "Type"],
        ["9007199254740997", "=Sum", "herb"],
        [1_234_567_890_123_456, "Rounded", "herb"],
        [301, "Mint"],
      ]),
    };
    await chooseFile(page, "stock.xlsx", makeWorkbook({ sheets }));
    // The raw rows are there while columns are missing.
    await page.getByRole("columnheader", { name: "Anna" }).waitFor();
    await page.getByLabel("Sheet").selectOption("Stock");
    await page.getByRole("cell", { name: /Nr: the spreadsheet has rounded it/ }).waitFor();
    await page.getByLabel("Column names").selectOption("None, all rows are data");
    await page
      .getByRole("cell", { name: /The id is not a whole number/ })
      .first()
      .waitFor();
    expect(await page.getByLabel("Sheet").inputValue()).toBe("Stock");
    await page.getByLabel("Column names").selectOption("Row 1: Nr, Plant, Type");
    await figure(page, "To add", "2");
    // The columns that were guessed are shown, and stay when one of them is changed.
    expect(await page.getByLabel("Id", { exact: true }).inputValue()).toBe("Nr");
    await page.getByLabel("Tag").selectOption("");
    await figure(page, "To add", "2");
    await figure(page, "To refuse", "1");
    await start(page);
    await page.getByText("1 of 3 rows was refused").waitFor();
    expect(await service.findPlant(9007199254740997n)).toMatchObject({ name: "=Sum" });
    expect(await service.findPlant(301n)).toMatchObject({ name: "Mint", tag: null });
  });

  it("gives the refused rows of a workbook back as a workbook, and knows its columns again", async (visit) => {
    const { page, service } = await visit.open({ at: "#/import" });
    const sheet = [
      ["Kode X", "Wat", "Bed", "Prijs"],
      [951, "Hosta", "north", 4.5],
      ["", "Iris", "north", 3],
      ["A-7", "=Sage"],
      [951, "Other", "south", 1],
    ];
    await chooseFile(page, "kist.xlsx", makeWorkbook({ sheets: { Kist: rowsOf(sheet) } }));
    await page.getByLabel("Id", { exact: true }).selectOption("Kode X");
    await page.getByLabel("Name", { exact: true }).selectOption("Wat");
    await page.getByLabel("Tag", { exact: true }).selectOption("Bed");
    await figure(page, "To refuse", "3");
    await start(page);
    await page.getByText("3 of 4 rows were refused").waitFor();
    await page.getByRole("cell", { name: "The id is missing." }).waitFor();
    const download = await saveFile(page, page.getByRole("button", { name: "Download all 3" }));
    expect(download.suggestedFilename()).toBe("refused.xlsx");
    const { sheets, readRows } = await openWorkbook(Bun.file(await download.path()));
    expect(sheets).toEqual(["Refused rows"]);
    expect(Buffer.concat(await Array.fromAsync(readRows())).toString()).toBe(
      '"line","reason","Kode X","Wat","Bed","Prijs"\n' +
        '3,"The id is missing.","","Iris","north",3\n' +
        '4,"The id is not a whole number: ""A-7"".","A-7","\'=Sage",,\n' +
        '5,"Two rows have this id: 2 and 5. The first one counts.",951,"Other","south",1\n',
    );

    // After a reload, too.
    await page.reload();
    await page.getByRole("button", { name: "Choose a file" }).waitFor();
    const mended = [
      ["line", "reason", "Kode X", "Wat", "Bed", "Prijs"],
      [3, "The id is missing.", 952, "Iris", "north", 3],
      [4, "The id is not a whole number.", 953, "=Sage"],
      [5, "Two rows have this id", 951, "Other", "south", 1],
    ];
    await chooseFile(page, "mended.xlsx", makeWorkbook({ sheets: { One: rowsOf(mended) } }));
    await figure(page, "To add", "2");
    expect(await page.getByLabel("Tag", { exact: true }).inputValue()).toBe("Bed");
    await start(page);
    await page.getByText("1 of 3 rows was refused").waitFor();
    expect(await service.findPlant(952n)).toMatchObject({ name: "Iris", tag: "north" });
    expect(await service.findPlant(953n)).toMatchObject({ name: "=Sage", tag: null });
    // The old line and reason are replaced, and do not pile up.
    const again = await saveFile(page, page.getByRole("button", { name: "Download all 1" }));
    const rest = (await openWorkbook(Bun.file(await again.path()))).readRows();
    expect(Buffer.concat(await Array.fromAsync(rest)).toString()).toBe(
      '"line","reason","Kode X","Wat","Bed","Prijs"\n' +
        '4,"A different plant has the id 951; nothing was changed.",951,"Other","south",1\n',
    );
  });

  it("skips titles above the column names, as they are guessed or chosen", async (visit) => {
    const { page, service } = await visit.open({ at: "#/import" });
    const sheet = [
      ["Stock of the nursery", "", "as of", "1 May 2026"],
      [""],
      ["All prices in €"],
      ["Article", "", "Price"],
      ["EAN", "Name", "net", "gross"],
      ["4006381333931", "Rose", 1, 2],
    ];
    await chooseFile(page, "titles.xlsx", makeWorkbook({ sheets: { Stock: rowsOf(sheet) } }));
    await page.getByRole("cell", { name: "4006381333931", exact: true }).first().waitFor();
    expect(await page.getByLabel("Column names").inputValue()).toBe("5");
    await figure(page, "To refuse", "0");
    await page.getByLabel("Column names").selectOption("Row 4: Article, Price");
    await page.getByText("Which column is it?").first().waitFor();
    await page.getByLabel("Column names").selectOption("Row 5: EAN, Name, net, gross");
    await figure(page, "To add", "1");
    await start(page);
    await page.getByText("Import complete").waitFor();
    expect(await service.findPlant(4_006_381_333_931n)).toMatchObject({ name: "Rose" });

    // With a title, the sign between the cells is not in the first line.
    await page.getByRole("button", { name: "Another file" }).click();
    const text =
      "Lagerliste, Stand 1.5.\r\n\r\nKode;Was;Preis\r\n961;Blüte;4,50\r\n962;Efeu;3,20\r\n";
    await chooseFile(page, "titel.csv", latin1(text));
    await page.getByLabel("Id", { exact: true }).selectOption("Kode");
    await page.getByLabel("Name", { exact: true }).selectOption("Was");
    await page.getByRole("cell", { name: "Blüte" }).first().waitFor();
    expect(await page.getByLabel("Separator").inputValue()).toBe(";");
    expect(await page.getByLabel("Column names").inputValue()).toBe("3");
    await figure(page, "To add", "2");
  });

  test("guesses the columns: of two candidates, the one whose cells can be ids", async (visit) => {
    const { page } = await visit.open({ at: "#/import" });
    const lines = "Ref;Genre;Bed;Nom;Nr\nA-1;t;b;Fougère;981\n";
    await chooseFile(page, "supplier.csv", lines);
    await page.getByRole("cell", { name: "Fougère" }).first().waitFor();
    for (const [label, heading] of Object.entries({ Id: "Nr", Name: "Nom", Tag: "Genre" }))
      expect(await page.getByLabel(label, { exact: true }).inputValue()).toBe(heading);
  });

  test("says that a PDF or a picture is one, and takes another file", async (visit) => {
    const { page } = await visit.open({ at: "#/import" });
    for (const [name, content, said] of [
      ["list.pdf", "%PDF-1.7\n%\xe2\xe3", "The file is a PDF."],
      ["list.csv", "\x89PNG\r\n\x1a\n", "The file is a picture or a video."],
      ["photo.heic", "\0\0\0\x24ftypheic", "The file is a picture or a video."],
    ] as const) {
      await chooseFile(page, name, latin1(content));
      await page.getByText(said).waitFor();
      expect(await page.getByRole("button", { name: "Start import" }).count()).toBe(0);
      expect(await page.getByLabel("Separator").count()).toBe(0);
    }
    await chooseFile(page, "list.csv", "id,name\n971,Lily\n");
    await page.getByRole("cell", { name: "Lily" }).waitFor();
  });
});

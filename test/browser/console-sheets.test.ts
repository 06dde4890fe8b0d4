/** Spreadsheets in the console: workbooks, titles, headings in six languages, and what is no spreadsheet. */

import { expect } from "bun:test";
import { describeInBrowser, startJourneys } from "../support/browser.ts";
import { makeWorkbook, rowsOf } from "../support/workbook.ts";

const { it, test } = await startJourneys();

const latin1 = (text: string): Buffer => Buffer.from(text, "latin1");

describeInBrowser("an import", () => {
  it("of a workbook reads the sheet that is chosen, and refuses what Excel has rounded", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    await user.chooseFile("stock.xlsx", "PK\u0003\u0004 and so on");
    await user.see({ text: "The file is damaged, or is not a workbook (.xlsx)." });
    expect(await page.getByRole("button", { name: "Start import" }).isDisabled()).toBe(true);
    await user.click("Another file");
    const sheets = {
      Notes: rowsOf([["Ask", "Anna"]]),
      Stock: rowsOf([
        ["Nr", "Plant", "Type"],
        ["9007199254740997", "=Sum", "herb"],
        [1_234_567_890_123_456, "Rounded", "herb"],
        [301, "Mint"],
      ]),
    };
    await user.chooseFile("stock.xlsx", makeWorkbook({ sheets }));
    // The raw rows are there while columns are missing.
    await user.see({ columnheader: "Anna" });
    await page.getByLabel("Sheet").selectOption("Stock");
    await user.see({
      cell: /The spreadsheet has rounded the id to 1\.234567890123456E\+15\. Format the column as text/,
    });
    await page.getByLabel("Column names").selectOption("None, all rows are data");
    await user.see({ firstCell: /The id is not a whole number/ });
    expect(await page.getByLabel("Sheet").inputValue()).toBe("Stock");
    await page.getByLabel("Column names").selectOption("Row 1: Nr, Plant, Type");
    await user.see({ figure: "To add 2" });
    // The columns that were guessed are shown, and stay when one of them is changed.
    expect(await user.field("Id").inputValue()).toBe("Nr");
    await page.getByLabel("Tag").selectOption("");
    await user.see({ figure: ["To add 2", "To refuse 1"] });
    await user.click("Start import", { text: "1 of 3 rows was refused" });
    expect(await service.findPlant(9007199254740997n)).toMatchObject({ name: "=Sum" });
    expect(await service.findPlant(301n)).toMatchObject({ name: "Mint", tag: null });
  });

  it("gives the refused rows of a workbook back as a workbook, and knows its columns again", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    const sheet = [
      ["Kode X", "Wat", "Bed", "Prijs"],
      [951, "Hosta", "north", 4.5],
      ["", "Iris", "north", 3],
      ["A-7", "=Sage"],
      [951, "Other", "south", 1],
    ];
    await user.chooseFile("kist.xlsx", makeWorkbook({ sheets: { Kist: rowsOf(sheet) } }));
    await user.field("Id").selectOption("Kode X");
    await user.field("Name").selectOption("Wat");
    await user.field("Tag").selectOption("Bed");
    await user.see({ figure: "To refuse 3" });
    await user.click("Start import", {
      text: "3 of 4 rows were refused",
      cell: "The id is missing.",
    });
    const refused = await user.saveFile(page.getByRole("button", { name: "Download all 3" }));
    expect(refused).toMatchObject({ name: "refused.xlsx", sheets: ["Refused rows"] });
    expect(refused.text).toBe(
      '"line","reason","Kode X","Wat","Bed","Prijs"\n' +
        '3,"The id is missing.","","Iris","north",3\n' +
        '4,"The id is not a whole number: ""A-7"".","A-7","\'=Sage",,\n' +
        '5,"Two rows have this id: 2 and 5. The first one counts.",951,"Other","south",1\n',
    );

    // After a reload, too.
    await user.reload({ button: "Choose a file" });
    const mended = [
      ["line", "reason", "Kode X", "Wat", "Bed", "Prijs"],
      [3, "The id is missing.", 952, "Iris", "north", 3],
      [4, "The id is not a whole number.", 953, "=Sage"],
      [5, "Two rows have this id", "A-8", "Other", "south", 1],
    ];
    await user.chooseFile("mended.xlsx", makeWorkbook({ sheets: { One: rowsOf(mended) } }));
    await user.see({ figure: "To add 2" });
    expect(await user.field("Tag").inputValue()).toBe("Bed");
    await user.click("Start import", { text: "1 of 3 rows was refused" });
    expect(await service.findPlant(952n)).toMatchObject({ name: "Iris", tag: "north" });
    expect(await service.findPlant(953n)).toMatchObject({ name: "=Sage", tag: null });
    // The old line and reason are replaced, and do not pile up.
    const again = await user.saveFile(page.getByRole("button", { name: "Download all 1" }));
    expect(again.text).toBe(
      '"line","reason","Kode X","Wat","Bed","Prijs"\n' +
        '4,"The id is not a whole number: ""A-8"".","A-8","Other","south",1\n',
    );
  });

  it("skips titles above the column names, as they are guessed or chosen", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/import" });
    const sheet = [
      ["Stock of the nursery", "", "as of", "1 May 2026"],
      [""],
      ["All prices in €"],
      ["Article", "", "Price"],
      ["EAN", "Name", "net", "gross"],
      ["4006381333931", "Rose", 1, 2],
    ];
    await user.chooseFile("titles.xlsx", makeWorkbook({ sheets: { Stock: rowsOf(sheet) } }));
    await user.see({ firstCell: /^4006381333931$/ });
    expect(await page.getByLabel("Column names").inputValue()).toBe("5");
    await user.see({ figure: "To refuse 0" });
    await page.getByLabel("Column names").selectOption("Row 4: Article, Price");
    await user.see({ firstText: "Which column is it?" });
    await page.getByLabel("Column names").selectOption("Row 5: EAN, Name, net, gross");
    await user.see({ figure: "To add 1" });
    await user.click("Start import", { text: "Import complete" });
    expect(await service.findPlant(4_006_381_333_931n)).toMatchObject({ name: "Rose" });

    // With a title, the sign between the cells is not in the first line.
    await user.click("Another file");
    const text = "Lagerliste, Stand 1.5.\r\n\r\nKode;Was;Preis\r\n961;Blüte;4,50\r\n962;Efeu;3,20";
    await user.chooseFile("titel.csv", latin1(text));
    await user.field("Id").selectOption("Kode");
    await user.field("Name").selectOption("Was");
    await user.see({ firstCell: "Blüte" });
    expect(await page.getByLabel("Separator").inputValue()).toBe(";");
    expect(await page.getByLabel("Column names").inputValue()).toBe("3");
    await user.see({ figure: "To add 2" });
  });

  test("says that a PDF or a picture is one, and reads the file that is chosen in its place", async (visit) => {
    const { page, user } = await visit.open({ at: "#/import" });
    for (const [name, content, said] of [
      ["list.pdf", "%PDF-1.7\n%\xe2\xe3", "The file is a PDF."],
      ["list.csv", "\x89PNG\r\n\x1a\n", "The file is a picture or a video."],
      ["photo.heic", "\0\0\0\x24ftypheic", "The file is a picture or a video."],
    ] as const) {
      await user.chooseFile(name, latin1(content), { text: said });
      expect(await page.getByRole("button", { name: "Start import" }).count()).toBe(0);
      expect(await page.getByLabel("Separator").count()).toBe(0);
    }
    const lines = "Id;Genre;Bed;Nom;Nr\nA-1;t;b;Fougère;981\n";
    await user.chooseFile("list.csv", lines, { firstCell: "Fougère" });
    for (const [label, heading] of Object.entries({ Id: "Nr", Name: "Nom", Tag: "Genre" }))
      expect(await user.field(label).inputValue()).toBe(heading);
  });
});

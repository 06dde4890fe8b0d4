import { expect, test } from "bun:test";
import { guessColumns } from "../../console/import/headings.ts";

test.each([
  ["Item no.", "Plant name", "Category"],
  ["Barcode", "Description", "Type"],
  ["Art.-Nr.", "Bezeichnung", "Warengruppe"],
  ["EAN", "Artikel", "Gruppe"],
  ["Code-barres", "Désignation", "Catégorie"],
  ["N°", "Nom de la plante", "Famille"],
  ["Código de barras", "Nombre", "Categoría"],
  ["Número", "Descripción", "Tipo"],
  ["Codice a barre", "Nome", "Categoria"],
  ["Cod. articolo", "Descrizione", "Tipologia"],
  ["Artikelnummer", "Naam", "Soort"],
  ["Streepjescode (EAN)", "Omschrijving", "Groep"],
])("%s, %s and %s are the id, the name and the tag", (id, name, tag) => {
  // The first would be the id if it had numbers.
  const columns = ["Id", tag, "Bed", name, id];
  expect(guessColumns(columns, (heading) => heading !== "Id")).toEqual({ id, name, tag });
});

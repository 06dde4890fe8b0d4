/** The faults of plants and files, by their keys. The English words are in src/domain/faults.ts. */

import type { FaultName } from "../../src/domain/faults.ts";
import type { Language } from "./table.ts";

export const faults = {
  int64: {
    de: "Das Feld ({field}) ist keine ganze Zahl im erlaubten Bereich.",
    fr: "Le champ ({field}) n’est pas un nombre entier dans la plage admise.",
    es: "El campo ({field}) no es un número entero dentro del rango admitido.",
  },
  string: {
    de: "Das Feld ({field}) ist kein Text.",
    fr: "Le champ ({field}) n’est pas un texte.",
    es: "El campo ({field}) no es un texto.",
  },
  storable: {
    de: "Das Feld ({field}) enthält ein Zeichen, das sich nicht speichern lässt (U+0000 oder ein halbes Ersatzpaar).",
    fr: "Le champ ({field}) contient un caractère impossible à enregistrer (U+0000 ou une moitié de paire de substitution).",
    es: "El campo ({field}) contiene un carácter que no se puede guardar (U+0000 o medio par sustituto).",
  },
  idMissing: {
    de: "Die Id fehlt.",
    fr: "L’id manque.",
    es: "Falta el id.",
  },
  nameMissing: {
    de: "Der Name fehlt.",
    fr: "Le nom manque.",
    es: "Falta el nombre.",
  },
  idTooLarge: {
    de: "Die Id ist zu groß: {id}.",
    fr: "L’id est trop grand : {id}.",
    es: "El id es demasiado grande: {id}.",
  },
  idNotInteger: {
    de: "Die Id ist keine ganze Zahl: {id}.",
    fr: "L’id n’est pas un nombre entier : {id}.",
    es: "El id no es un número entero: {id}.",
  },
  rounded: {
    de: "Die Tabellenkalkulation hat den Wert ({field}) auf {value} gerundet. Die Spalte als Text formatieren, den Wert erneut eingeben und speichern.",
    fr: "Le tableur a arrondi la valeur ({field}) à {value}. Mettre la colonne au format texte, saisir la valeur à nouveau et enregistrer.",
    es: "La hoja de cálculo ha redondeado el valor ({field}) a {value}. Dar a la columna formato de texto, escribirlo de nuevo y guardar.",
  },
  formula: {
    de: "Die Formel der Zelle ({field}) hat kein gespeichertes Ergebnis. Die Datei in einer Tabellenkalkulation öffnen und speichern.",
    fr: "La formule de la cellule ({field}) n’a pas de résultat enregistré. Ouvrir le fichier dans un tableur et l’enregistrer.",
    es: "La fórmula de la celda ({field}) no tiene un resultado guardado. Abrir el archivo en una hoja de cálculo y guardarlo.",
  },
  cellError: {
    de: "Die Zelle ({field}) zeigt den Fehler {error}.",
    fr: "La cellule ({field}) affiche l’erreur {error}.",
    es: "La celda ({field}) muestra el error {error}.",
  },
  textAfterQuote: {
    de: "Nach dem schließenden Anführungszeichen einer Zelle folgt Text.",
    fr: "Du texte suit le guillemet fermant d’une cellule.",
    es: "Hay texto tras las comillas de cierre de una celda.",
  },
  cellCount: {
    de: "Zellen der Zeile: {cells}, der Kopfzeile: {heads}.",
    fr: "Cellules de la ligne : {cells} ; de l’en-tête : {heads}.",
    es: "Celdas de la fila: {cells}; del encabezado: {heads}.",
  },
  recordTooLarge: {
    de: "Der Datensatz ist größer als {bytes} Bytes.",
    fr: "L’enregistrement dépasse {bytes} octets.",
    es: "El registro supera los {bytes} bytes.",
  },
  recordNotUtf8: {
    de: "Der Datensatz ist kein gültiges UTF-8.",
    fr: "L’enregistrement n’est pas en UTF-8 valide.",
    es: "El registro no es UTF-8 válido.",
  },
  notInFile: {
    de: "In einer Datei ist {member} nicht erlaubt: {value}.",
    fr: "Dans un fichier, {member} n’est pas admis : {value}.",
    es: "En un archivo no se admite {member}: {value}.",
  },
  openCell: {
    de: "Die Datei endet in einer Zelle in Anführungszeichen, in der Zeile, die in Zeile {line} beginnt.",
    fr: "Le fichier se termine dans une cellule entre guillemets, dans la rangée qui commence à la ligne {line}.",
    es: "El archivo termina dentro de una celda entre comillas, en la fila que empieza en la línea {line}.",
  },
  openArray: {
    de: "Die Datei endet im Array, im Datensatz, der in Zeile {line} beginnt.",
    fr: "Le fichier se termine dans son tableau, dans l’enregistrement qui commence à la ligne {line}.",
    es: "El archivo termina dentro de su array, en el registro que empieza en la línea {line}.",
  },
  afterArray: {
    de: "In Zeile {line} steht Text nach dem Ende des Arrays.",
    fr: "La ligne {line} contient du texte après la fin du tableau.",
    es: "La línea {line} tiene texto tras el final del array.",
  },
  noArray: {
    de: "In Zeile {line} beginnt kein JSON-Array. Mit einer Pflanze je Zeile ist das Format NDJSON.",
    fr: "La ligne {line} ne commence pas un tableau JSON. Avec une plante par ligne, le format est NDJSON.",
    es: "La línea {line} no empieza un array JSON. Con una planta por línea, el formato es NDJSON.",
  },
  emptyTable: {
    de: "Die Datei ist leer; eine Kopfzeile wird erwartet.",
    fr: "Le fichier est vide ; un en-tête est attendu.",
    es: "El archivo está vacío; se espera un encabezado.",
  },
  emptyArray: {
    de: "Die Datei ist leer; ein JSON-Array wird erwartet.",
    fr: "Le fichier est vide ; un tableau JSON est attendu.",
    es: "El archivo está vacío; se espera un array JSON.",
  },
  inHeading: {
    de: "Die Kopfzeile:",
    fr: "L’en-tête :",
    es: "El encabezado:",
  },
  noColumn: {
    de: "Keine Spalte heißt {heading}; es gibt {columns}.",
    fr: "Aucune colonne ne s’appelle {heading} ; il y a {columns}.",
    es: "Ninguna columna se llama {heading}; hay {columns}.",
  },
  twoColumns: {
    de: "Mehrere Spalten heißen {heading}; es gibt {columns}.",
    fr: "Plusieurs colonnes s’appellent {heading} ; il y a {columns}.",
    es: "Varias columnas se llaman {heading}; hay {columns}.",
  },
  notValid: {
    de: "Die Datei ist kein gültiges {encoding}.",
    fr: "Le fichier n’est pas en {encoding} valide.",
    es: "El archivo no es {encoding} válido.",
  },
  notUtf8: {
    de: "Die Datei ist nicht in UTF-8, sondern vermutlich in Windows-1252, wie Excel einfaches CSV speichert.",
    fr: "Le fichier n’est pas en UTF-8. Il semble être en Windows-1252, comme Excel enregistre le CSV simple.",
    es: "El archivo no está en UTF-8. Parece estar en Windows-1252, como Excel guarda el CSV simple.",
  },
  archive: {
    de: "Die Datei ist eine Excel-Mappe oder ein Archiv, kein Text. Als Excel-Mappe (.xlsx) lesen oder als CSV speichern.",
    fr: "Le fichier est un classeur ou une archive, pas du texte. Le lire comme classeur (.xlsx) ou l’enregistrer en CSV.",
    es: "El archivo es un libro de Excel o un archivo comprimido, no texto. Leerlo como libro (.xlsx) o guardarlo como CSV.",
  },
  oldWorkbook: {
    de: "Die Datei ist eine alte Excel-Mappe (.xls) oder hat ein Passwort. Als .xlsx ohne Passwort speichern.",
    fr: "Le fichier est un ancien classeur Excel (.xls) ou a un mot de passe. L’enregistrer en .xlsx sans mot de passe.",
    es: "El archivo es un libro de Excel antiguo (.xls) o tiene contraseña. Guardarlo como .xlsx sin contraseña.",
  },
  picture: {
    de: "Die Datei ist ein Bild oder ein Video.",
    fr: "Le fichier est une image ou une vidéo.",
    es: "El archivo es una imagen o un vídeo.",
  },
  pdf: {
    de: "Die Datei ist ein PDF.",
    fr: "Le fichier est un PDF.",
    es: "El archivo es un PDF.",
  },
  askForTable: {
    de: "Um die Liste als Tabelle (.xlsx) oder als CSV bitten.",
    fr: "Demander la liste en classeur (.xlsx) ou en CSV.",
    es: "Pedir la lista como hoja de cálculo (.xlsx) o como CSV.",
  },
  compressed: {
    de: "Die Datei ist mit gzip komprimiert. Entpacken und den Inhalt importieren.",
    fr: "Le fichier est compressé avec gzip. Le décompresser et importer son contenu.",
    es: "El archivo está comprimido con gzip. Descomprimirlo e importar su contenido.",
  },
  notWorkbook: {
    de: "Die Datei ist beschädigt oder keine Excel-Mappe (.xlsx).",
    fr: "Le fichier est endommagé ou n’est pas un classeur (.xlsx).",
    es: "El archivo está dañado o no es un libro de Excel (.xlsx).",
  },
  noSheet: {
    de: "Kein Blatt heißt {sheet}; es gibt {sheets}.",
    fr: "Aucune feuille ne s’appelle {sheet} ; il y a {sheets}.",
    es: "Ninguna hoja se llama {sheet}; hay {sheets}.",
  },
  sheetDamaged: {
    de: "Das Blatt {sheet} ist beschädigt, ist ein Diagramm oder hat mehr als 20 Millionen Zellen.",
    fr: "La feuille {sheet} est endommagée, est un graphique ou a plus de 20 millions de cellules.",
    es: "La hoja {sheet} está dañada, es un gráfico o tiene más de 20 millones de celdas.",
  },
  workbookTooLarge: {
    de: "Die Mappe ist entpackt größer als {bytes} Bytes.",
    fr: "Le classeur décompressé dépasse {bytes} octets.",
    es: "El libro descomprimido supera los {bytes} bytes.",
  },
  textMissing: {
    de: "Eine Zelle verweist auf einen Text, der in der Mappe fehlt. In einer Tabellenkalkulation öffnen, speichern und erneut importieren.",
    fr: "Une cellule renvoie à un texte absent du classeur. L’ouvrir dans un tableur, l’enregistrer et l’importer à nouveau.",
    es: "Una celda remite a un texto que no está en el libro. Abrirlo en una hoja de cálculo, guardarlo e importarlo de nuevo.",
  },
} satisfies Readonly<Record<FaultName, Readonly<Record<Exclude<Language, "en">, string>>>>;

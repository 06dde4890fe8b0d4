/** Words that several views use, units, and what went wrong. */

import type { Table } from "./table.ts";

export const shared = {
  close: { en: "Close", de: "Schließen", fr: "Fermer", es: "Cerrar" },
  id: { en: "Id", de: "Id", fr: "Id", es: "Id" },
  open: { en: "Open", de: "Öffnen", fr: "Ouvrir", es: "Abrir" },
  tryAgain: { en: "Try again", de: "Erneut versuchen", fr: "Réessayer", es: "Reintentar" },
  loading: { en: "Loading…", de: "Wird geladen …", fr: "Chargement…", es: "Cargando…" },
  name: { en: "Name", de: "Name", fr: "Nom", es: "Nombre" },
  tag: { en: "Tag", de: "Schlagwort", fr: "Mot-clé", es: "Etiqueta" },
  noName: { en: "no name", de: "ohne Namen", fr: "sans nom", es: "sin nombre" },
  emptyTag: { en: "empty", de: "leer", fr: "vide", es: "vacía" },
  required: { en: "(required)", de: "(erforderlich)", fr: "(obligatoire)", es: "(obligatorio)" },
  undo: { en: "Undo", de: "Rückgängig", fr: "Annuler", es: "Deshacer" },
  cancel: { en: "Cancel", de: "Abbrechen", fr: "Abandonner", es: "Cancelar" },
  delete: { en: "Delete", de: "Löschen", fr: "Supprimer", es: "Eliminar" },
  stop: { en: "Stop", de: "Anhalten", fr: "Arrêter", es: "Detener" },
  actions: { en: "Actions", de: "Aktionen", fr: "Actions", es: "Acciones" },
  counting: { en: "Counting…", de: "Wird gezählt …", fr: "Comptage…", es: "Contando…" },
  noMatch: { en: "No match", de: "Keine Treffer", fr: "Aucun résultat", es: "Sin resultados" },
  noHistory: {
    en: "This store keeps no history.",
    de: "Dieser Bestand führt kein Journal.",
    fr: "Ce service ne conserve pas d’historique.",
    es: "Este servicio no guarda historial.",
  },
  commandLine: {
    en: "the command line",
    de: "die Befehlszeile",
    fr: "la ligne de commande",
    es: "la línea de comandos",
  },
  notLoaded: {
    en: "This part of the page could not be loaded",
    de: "Dieser Teil der Seite konnte nicht geladen werden",
    fr: "Cette partie de la page n’a pas pu être chargée",
    es: "No se ha podido cargar esta parte de la página",
  },
  loadedLater: {
    en: "It comes when the connection is back.",
    de: "Er kommt, sobald die Verbindung wieder da ist.",
    fr: "Elle s’affichera au retour de la connexion.",
    es: "Aparecerá cuando vuelva la conexión.",
  },
  upgraded: {
    en: "The service may have a new version. Unsaved edits survive a reload.",
    de: "Der Dienst hat vielleicht eine neue Version. Ungespeicherte Änderungen überstehen ein Neuladen.",
    fr: "Le service a peut-être une nouvelle version. Les modifications non enregistrées survivent à un rechargement.",
    es: "Puede que el servicio tenga una versión nueva. Los cambios sin guardar sobreviven a una recarga.",
  },
  reload: {
    en: "Reload the page",
    de: "Seite neu laden",
    fr: "Recharger la page",
    es: "Recargar la página",
  },
  /** What went wrong, in place of the service's message. */
  connectionLost: {
    en: "The connection was lost before an answer came.",
    de: "Die Verbindung brach ab, bevor eine Antwort kam.",
    fr: "La connexion a été perdue avant la réponse.",
    es: "La conexión se perdió antes de recibir respuesta.",
  },
  busy: {
    en: "The store is busy or unavailable right now.",
    de: "Der Bestand ist gerade beschäftigt oder nicht erreichbar.",
    fr: "Le service est occupé ou indisponible pour le moment.",
    es: "El servicio está ocupado o no disponible en este momento.",
  },
  pageFailed: {
    en: "Something went wrong on this page.",
    de: "Auf dieser Seite ist etwas schiefgegangen.",
    fr: "Une erreur s’est produite sur cette page.",
    es: "Algo ha fallado en esta página.",
  },
  /** A name in a sentence. */
  quoted: { en: "“{name}”", de: "„{name}“", fr: "« {name} »", es: "«{name}»" },
  plantWithoutName: { en: "plant {id}", de: "Pflanze {id}", fr: "plante {id}", es: "planta {id}" },
  plants: {
    en: { one: "{count} plant", other: "{count} plants" },
    de: { one: "{count} Pflanze", other: "{count} Pflanzen" },
    fr: { one: "{count} plante", other: "{count} plantes" },
    es: { one: "{count} planta", other: "{count} plantas" },
  },
  changes: {
    en: { one: "{count} change", other: "{count} changes" },
    de: { one: "{count} Änderung", other: "{count} Änderungen" },
    fr: { one: "{count} modification", other: "{count} modifications" },
    es: { one: "{count} cambio", other: "{count} cambios" },
  },
  lessThanASecond: {
    en: "less than a second",
    de: "weniger als 1 s",
    fr: "moins d’une seconde",
    es: "menos de un segundo",
  },
  /** Also after "… ago". */
  seconds: {
    en: { one: "{count} second", other: "{count} seconds" },
    de: { one: "{count} s", other: "{count} s" },
    fr: { one: "{count} seconde", other: "{count} secondes" },
    es: { one: "{count} segundo", other: "{count} segundos" },
  },
  minutes: {
    en: { one: "{count} minute", other: "{count} minutes" },
    de: { one: "{count} min", other: "{count} min" },
    fr: { one: "{count} minute", other: "{count} minutes" },
    es: { one: "{count} minuto", other: "{count} minutos" },
  },
  hours: {
    en: { one: "{count} hour", other: "{count} hours" },
    de: { one: "{count} h", other: "{count} h" },
    fr: { one: "{count} heure", other: "{count} heures" },
    es: { one: "{count} hora", other: "{count} horas" },
  },
  days: {
    en: { one: "{count} day", other: "{count} days" },
    de: { one: "{count} Tag", other: "{count} Tagen" },
    fr: { one: "{count} jour", other: "{count} jours" },
    es: { one: "{count} día", other: "{count} días" },
  },
} as const satisfies Table;

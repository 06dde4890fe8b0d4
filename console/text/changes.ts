/** The journal: changes, history of a plant, overview, pictures. */

import type { Table } from "./table.ts";

export const changes = {
  verbs: {
    created: { en: "Added", de: "Hinzugefügt", fr: "Ajout", es: "Añadida" },
    replaced: { en: "Changed", de: "Geändert", fr: "Modification", es: "Cambiada" },
    removed: { en: "Deleted", de: "Gelöscht", fr: "Suppression", es: "Eliminada" },
  },
  counts: {
    created: {
      en: "{count} added",
      de: "{count} hinzugefügt",
      fr: "ajouts : {count}",
      es: "añadidas: {count}",
    },
    replaced: {
      en: "{count} changed",
      de: "{count} geändert",
      fr: "modifications : {count}",
      es: "cambiadas: {count}",
    },
    removed: {
      en: "{count} deleted",
      de: "{count} gelöscht",
      fr: "suppressions : {count}",
      es: "eliminadas: {count}",
    },
  },
  /** A change of one plant. */
  what: {
    created: {
      en: "Added {plant}",
      de: "{plant} hinzugefügt",
      fr: "Ajout : {plant}",
      es: "Añadida: {plant}",
    },
    replaced: {
      en: "Changed {plant}",
      de: "{plant} geändert",
      fr: "Modification : {plant}",
      es: "Cambiada: {plant}",
    },
    removed: {
      en: "Deleted {plant}",
      de: "{plant} gelöscht",
      fr: "Suppression : {plant}",
      es: "Eliminada: {plant}",
    },
  },
  addedMany: {
    en: { one: "Added {count} plant", other: "Added {count} plants" },
    de: { one: "{count} Pflanze hinzugefügt", other: "{count} Pflanzen hinzugefügt" },
    fr: { one: "{count} plante ajoutée", other: "{count} plantes ajoutées" },
    es: { one: "{count} planta añadida", other: "{count} plantas añadidas" },
  },
  /** The name of an undo in the journal. */
  undoOf: {
    en: "Undo: {what}",
    de: "Rückgängig: {what}",
    fr: "Annulation : {what}",
    es: "Deshacer: {what}",
  },
  askUndo: {
    en: "Undo {what}?",
    de: "{what} rückgängig machen?",
    fr: "Annuler {what} ?",
    es: "¿Deshacer {what}?",
  },
  askUndoThese: {
    en: "Undo these changes?",
    de: "Diese Änderungen rückgängig machen?",
    fr: "Annuler ces modifications ?",
    es: "¿Deshacer estos cambios?",
  },
  askUndoThis: {
    en: "Undo this change?",
    de: "Diese Änderung rückgängig machen?",
    fr: "Annuler cette modification ?",
    es: "¿Deshacer este cambio?",
  },
  undoThese: {
    en: { one: "Undo this one", other: "Undo these {count}" },
    de: { one: "Diese eine rückgängig machen", other: "Diese {count} rückgängig machen" },
    fr: { one: "Annuler celle-ci", other: "Annuler ces {count}" },
    es: { one: "Deshacer este", other: "Deshacer estos {count}" },
  },
  today: { en: "Today", de: "Heute", fr: "Aujourd’hui", es: "Hoy" },
  sinceMidnight: {
    en: "Changes today",
    de: "Änderungen heute",
    fr: "Modifications du jour",
    es: "Cambios de hoy",
  },
  seeThem: { en: "See them", de: "Ansehen", fr: "Les voir", es: "Verlos" },
  nothingToday: {
    en: "Nobody has changed a plant today.",
    de: "Heute hat noch niemand eine Pflanze geändert.",
    fr: "Personne n’a modifié de plante aujourd’hui.",
    es: "Hoy nadie ha cambiado ninguna planta.",
  },
  otherUndid: {
    en: "{who} undid {what}.",
    de: "{who} hat rückgängig gemacht: {what}.",
    fr: "{who} a annulé {what}.",
    es: "{who} ha deshecho {what}.",
  },
  missed: {
    en: "Changes were missed: the store was restored, or this tab was away for long. Everything was read again.",
    de: "Änderungen fehlen: Der Bestand wurde wiederhergestellt, oder dieser Tab war lange weg. Alles wurde neu gelesen.",
    fr: "Des modifications manquent : le service a été restauré, ou cet onglet était longtemps absent. Tout a été relu.",
    es: "Faltan cambios: el servicio se ha restaurado, o esta pestaña ha estado mucho tiempo ausente. Se ha vuelto a leer todo.",
  },
  nothingLeft: {
    en: "Nothing of this is left to undo.",
    de: "Davon ist nichts mehr rückgängig zu machen.",
    fr: "Il ne reste rien à annuler ici.",
    es: "Ya no queda nada que deshacer aquí.",
  },
  previewFirst: {
    en: "A preview comes first.",
    de: "Zuerst kommt eine Vorschau.",
    fr: "Un aperçu s’affiche d’abord.",
    es: "Primero se muestra una vista previa.",
  },
  only: { en: "Only {what}", de: "Nur {what}", fr: "Uniquement {what}", es: "Solo {what}" },
  pickTime: {
    en: "Pick a time in the chart",
    de: "Zeitraum im Diagramm wählen",
    fr: "Choisir une période sur le graphique",
    es: "Elegir un periodo en el gráfico",
  },
  person: { en: "Person", de: "Person", fr: "Personne", es: "Persona" },
  anyPerson: { en: "Any person", de: "Person", fr: "Personne", es: "Persona" },
  plantId: { en: "Plant id", de: "Id der Pflanze", fr: "Id de la plante", es: "Id de la planta" },
  anyPlantId: { en: "Any plant id", de: "Id", fr: "Id", es: "Id" },
  kind: { en: "Kind", de: "Art", fr: "Type", es: "Tipo" },
  allKinds: { en: "All kinds", de: "Alle Arten", fr: "Tous les types", es: "Todos los tipos" },
  ends: {
    from: { en: "From", de: "Von", fr: "De", es: "Desde" },
    to: { en: "To", de: "Bis", fr: "À", es: "Hasta" },
  },
  all: {
    en: "All changes",
    de: "Alle Änderungen",
    fr: "Toutes les modifications",
    es: "Todos los cambios",
  },
  none: {
    en: "No changes yet",
    de: "Noch keine Änderungen",
    fr: "Pas encore de modifications",
    es: "Aún no hay cambios",
  },
  noneHint: {
    en: "Every plant that is added, changed or deleted is listed here.",
    de: "Jede Pflanze, die hinzugefügt, geändert oder gelöscht wird, steht hier.",
    fr: "Chaque plante ajoutée, modifiée ou supprimée apparaît ici.",
    es: "Aquí aparece cada planta añadida, cambiada o eliminada.",
  },
  noMatchHint: {
    en: "No change in the journal matches these filters.",
    de: "Keine Änderung im Journal passt zu diesen Filtern.",
    fr: "Aucune modification du journal ne correspond à ces filtres.",
    es: "Ningún cambio del historial coincide con estos filtros.",
  },
  showNewest: {
    en: "Show the newest changes",
    de: "Neueste Änderungen zeigen",
    fr: "Afficher les plus récentes",
    es: "Mostrar los cambios más recientes",
  },
  heads: {
    change: { en: "Change", de: "Änderung", fr: "Modification", es: "Cambio" },
    by: { en: "By", de: "Von", fr: "Par", es: "Por" },
    when: { en: "When", de: "Wann", fr: "Quand", es: "Cuándo" },
  },
  moreFailed: {
    en: "Couldn't load more",
    de: "Mehr konnte nicht geladen werden",
    fr: "Impossible d’en charger plus",
    es: "No se ha podido cargar más",
  },
  showMore: { en: "Show more", de: "Mehr zeigen", fr: "Afficher plus", es: "Mostrar más" },
  noOlder: {
    en: "No older changes are kept.",
    de: "Ältere Änderungen sind nicht mehr vorhanden.",
    fr: "Les modifications plus anciennes ne sont pas conservées.",
    es: "No se guardan cambios más antiguos.",
  },
  undone: { en: "Undone", de: "Rückgängig gemacht", fr: "Annulé", es: "Deshecho" },

  // The history of a plant.
  noneRecent: {
    en: "No recent changes.",
    de: "Keine neueren Änderungen.",
    fr: "Aucune modification récente.",
    es: "No hay cambios recientes.",
  },
  restore: { en: "Restore", de: "Wiederherstellen", fr: "Restaurer", es: "Restaurar" },
  entry: {
    en: "{verb} · {time}",
    de: "{verb} · {time}",
    fr: "{verb} · {time}",
    es: "{verb} · {time}",
  },
  entryBy: {
    en: "{verb} by {who} · {time}",
    de: "{verb} von {who} · {time}",
    fr: "{verb} par {who} · {time}",
    es: "{verb} por {who} · {time}",
  },
  before: { en: "Before", de: "Davor", fr: "Avant", es: "Antes" },
  noTag: { en: "no tag", de: "kein Schlagwort", fr: "sans mot-clé", es: "sin etiqueta" },

  // The picture.
  spans: {
    day: {
      en: "Last 24 hours",
      de: "Letzte 24 Stunden",
      fr: "Dernières 24 heures",
      es: "Últimas 24 horas",
    },
    week: {
      en: "Last 7 days",
      de: "Letzte 7 Tage",
      fr: "7 derniers jours",
      es: "Últimos 7 días",
    },
  },
  picture: {
    day: {
      en: "{changes}, last 24 hours. The table below has the figures.",
      de: "{changes} in den letzten 24 Stunden. Die Tabelle darunter hat die Zahlen.",
      fr: "{changes}, dernières 24 heures. Les chiffres sont dans le tableau ci-dessous.",
      es: "{changes}, últimas 24 horas. La tabla de abajo tiene las cifras.",
    },
    week: {
      en: "{changes}, last 7 days. The table below has the figures.",
      de: "{changes} in den letzten 7 Tagen. Die Tabelle darunter hat die Zahlen.",
      fr: "{changes}, 7 derniers jours. Les chiffres sont dans le tableau ci-dessous.",
      es: "{changes}, últimos 7 días. La tabla de abajo tiene las cifras.",
    },
  },
  others: {
    en: "{count} others",
    de: "{count} andere",
    fr: "{count} autres",
    es: "Otras {count}",
  },
  bar: {
    en: "{time}: {changes}",
    de: "{time}: {changes}",
    fr: "{time} : {changes}",
    es: "{time}: {changes}",
  },
  nothingThen: {
    en: "Nothing was changed in this time.",
    de: "In diesem Zeitraum wurde nichts geändert.",
    fr: "Rien n’a été modifié pendant cette période.",
    es: "En este periodo no se ha cambiado nada.",
  },
  bars: {
    from: {
      en: "From this bar of the chart",
      de: "Von diesem Balken des Diagramms",
      fr: "À partir de cette barre du graphique",
      es: "Desde esta barra del gráfico",
    },
    to: {
      en: "To this bar of the chart",
      de: "Bis zu diesem Balken des Diagramms",
      fr: "Jusqu’à cette barre du graphique",
      es: "Hasta esta barra del gráfico",
    },
  },
  asTable: { en: "As a table", de: "Als Tabelle", fr: "Sous forme de tableau", es: "Como tabla" },
  byTime: {
    en: "Changes by time",
    de: "Änderungen nach Zeitraum",
    fr: "Modifications par période",
    es: "Cambios por periodo",
  },
  time: { en: "Time", de: "Zeit", fr: "Période", es: "Periodo" },
  shares: {
    en: "{label}: {parts}",
    de: "{label}: {parts}",
    fr: "{label} : {parts}",
    es: "{label}: {parts}",
  },

  // The overview.
  stateOfStore: {
    en: "State of the store",
    de: "Zustand des Bestands",
    fr: "État du service",
    es: "Estado del servicio",
  },
  stateUnknown: {
    en: "The state of the store is unknown",
    de: "Der Zustand des Bestands ist unbekannt",
    fr: "L’état du service est inconnu",
    es: "Se desconoce el estado del servicio",
  },
  seeHealth: {
    en: "See the health page",
    de: "Zur Seite „Zustand“",
    fr: "Voir la page « État »",
    es: "Ver la página «Estado»",
  },
  noBackups: {
    en: "This service makes no backups.",
    de: "Dieser Dienst macht keine Sicherungen.",
    fr: "Ce service ne fait pas de sauvegardes.",
    es: "Este servicio no hace copias de seguridad.",
  },
  setBackups: {
    en: "Set PLANTSTORE_BACKUP_TO to a folder or a bucket, or back up the PostgreSQL server.",
    de: "PLANTSTORE_BACKUP_TO auf einen Ordner oder Bucket setzen oder den PostgreSQL-Server sichern.",
    fr: "Définir PLANTSTORE_BACKUP_TO sur un dossier ou un bucket, ou sauvegarder le serveur PostgreSQL.",
    es: "Definir PLANTSTORE_BACKUP_TO como una carpeta o un bucket, o hacer copias del servidor PostgreSQL.",
  },
  backupsFail: {
    en: "Backups are failing. {why}",
    de: "Sicherungen schlagen fehl. {why}",
    fr: "Les sauvegardes échouent. {why}",
    es: "Las copias de seguridad fallan. {why}",
  },
  noBackupYet: {
    en: "No backup has been made since the start.",
    de: "Seit dem Start wurde noch keine Sicherung gemacht.",
    fr: "Aucune sauvegarde depuis le démarrage.",
    es: "Aún no se ha hecho ninguna copia desde el inicio.",
  },
  lastBackup: {
    en: "The last backup was made {age} ago.",
    de: "Die letzte Sicherung war vor {age}.",
    fr: "La dernière sauvegarde date d’il y a {age}.",
    es: "La última copia se hizo hace {age}.",
  },
  openWebhooks: {
    en: "Open the webhooks",
    de: "Webhooks öffnen",
    fr: "Ouvrir les webhooks",
    es: "Abrir los webhooks",
  },
  webhookPaused: {
    en: "The webhook {name} is paused: {why}.",
    de: "Der Webhook {name} ist pausiert: {why}.",
    fr: "Le webhook {name} est en pause : {why}.",
    es: "El webhook {name} está en pausa: {why}.",
  },
  onRequest: { en: "on request", de: "auf Anforderung", fr: "sur demande", es: "a petición" },
  webhookFailed: {
    en: {
      one: "The webhook {name} failed {count} time.",
      other: "The webhook {name} failed {count} times.",
    },
    de: {
      one: "Der Webhook {name} schlug {count}-mal fehl.",
      other: "Der Webhook {name} schlug {count}-mal fehl.",
    },
    fr: {
      one: "Le webhook {name} a échoué {count} fois.",
      other: "Le webhook {name} a échoué {count} fois.",
    },
    es: {
      one: "El webhook {name} ha fallado {count} vez.",
      other: "El webhook {name} ha fallado {count} veces.",
    },
  },
  webhookFailedWith: {
    en: {
      one: "The webhook {name} failed {count} time with {why}.",
      other: "The webhook {name} failed {count} times with {why}.",
    },
    de: {
      one: "Der Webhook {name} schlug {count}-mal fehl ({why}).",
      other: "Der Webhook {name} schlug {count}-mal fehl ({why}).",
    },
    fr: {
      one: "Le webhook {name} a échoué {count} fois ({why}).",
      other: "Le webhook {name} a échoué {count} fois ({why}).",
    },
    es: {
      one: "El webhook {name} ha fallado {count} vez ({why}).",
      other: "El webhook {name} ha fallado {count} veces ({why}).",
    },
  },
  noAnswer: { en: "no answer", de: "keine Antwort", fr: "pas de réponse", es: "sin respuesta" },
  nextAttempt: {
    en: "The next attempt is at {time}.",
    de: "Nächster Versuch: {time}.",
    fr: "Prochain essai : {time}.",
    es: "Próximo intento: {time}.",
  },
  webhooksDeliver: {
    en: {
      one: "The webhook is delivering.",
      other: "All {count} webhooks are delivering.",
    },
    de: {
      one: "Der Webhook funktioniert.",
      other: "Alle {count} Webhooks funktionieren.",
    },
    fr: { one: "Le webhook fonctionne.", other: "Les {count} webhooks fonctionnent." },
    es: { one: "El webhook funciona.", other: "Los {count} webhooks funcionan." },
  },
  timeShown: {
    en: "Time shown",
    de: "Gezeigter Zeitraum",
    fr: "Période affichée",
    es: "Periodo mostrado",
  },
  kindShown: { en: "Kind shown", de: "Gezeigte Art", fr: "Type affiché", es: "Tipo mostrado" },
  dragHint: {
    en: "Drag over the chart to pick a time, and to see or undo its changes.",
    de: "Über das Diagramm ziehen, um einen Zeitraum zu wählen und seine Änderungen zu sehen oder rückgängig zu machen.",
    fr: "Glisser sur le graphique pour choisir une période, et voir ou annuler ses modifications.",
    es: "Arrastrar sobre el gráfico para elegir un periodo, y ver o deshacer sus cambios.",
  },
  seeOrUndo: {
    en: "See or undo {changes}",
    de: "{changes} ansehen oder rückgängig machen",
    fr: "Voir ou annuler {changes}",
    es: "Ver o deshacer {changes}",
  },
  notCounted: {
    en: "The plants could not be counted",
    de: "Die Pflanzen konnten nicht gezählt werden",
    fr: "Les plantes n’ont pas pu être comptées",
    es: "No se han podido contar las plantas",
  },
  inAll: {
    en: "{count} in all",
    de: "{count} insgesamt",
    fr: "{count} en tout",
    es: "{count} en total",
  },
  byTag: {
    en: "Plants by tag",
    de: "Pflanzen nach Schlagwort",
    fr: "Plantes par mot-clé",
    es: "Plantas por etiqueta",
  },
  otherTags: {
    en: {
      one: "{count} other tag with {plants} plants.",
      other: "{count} other tags with {plants} plants.",
    },
    de: {
      one: "{count} weiteres Schlagwort mit {plants} Pflanzen.",
      other: "{count} weitere Schlagwörter mit {plants} Pflanzen.",
    },
    fr: {
      one: "{count} autre mot-clé avec {plants} plantes.",
      other: "{count} autres mots-clés avec {plants} plantes.",
    },
    es: {
      one: "{count} etiqueta más con {plants} plantas.",
      other: "{count} etiquetas más con {plants} plantas.",
    },
  },
  withoutTag: {
    en: "{count} without a tag",
    de: "{count} ohne Schlagwort",
    fr: "{count} sans mot-clé",
    es: "{count} sin etiqueta",
  },
  firstTags: {
    en: "Only the first {count} tags were counted.",
    de: "Nur die ersten {count} Schlagwörter wurden gezählt.",
    fr: "Seuls les {count} premiers mots-clés ont été comptés.",
    es: "Solo se han contado las primeras {count} etiquetas.",
  },
  findRepeated: {
    en: "Find repeated names",
    de: "Doppelte Namen suchen",
    fr: "Chercher les noms en double",
    es: "Buscar nombres repetidos",
  },
  noRepeated: {
    en: "No name occurs more than once.",
    de: "Kein Name kommt mehrfach vor.",
    fr: "Aucun nom n’est en double.",
    es: "Ningún nombre está repetido.",
  },
  repeated: {
    en: {
      one: "{count} name occurs more than once.",
      other: "{count} names occur more than once.",
    },
    de: {
      one: "{count} Name kommt mehrfach vor.",
      other: "{count} Namen kommen mehrfach vor.",
    },
    fr: {
      one: "{count} nom figure plusieurs fois.",
      other: "{count} noms figurent plusieurs fois.",
    },
    es: {
      one: "{count} nombre está repetido.",
      other: "{count} nombres están repetidos.",
    },
  },
  mostRepeated: {
    en: "The {count} most frequent ones:",
    de: "Die {count} häufigsten:",
    fr: "Les {count} plus fréquents :",
    es: "Los {count} más frecuentes:",
  },
} as const satisfies Table;

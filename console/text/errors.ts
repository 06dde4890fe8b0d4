/** What the errors of the API mean, by their names. In English the service says it. */

import type { ErrorName } from "../../client/client.ts";
import type { Language } from "./table.ts";

export const errors = {
  invalid_utf8: {
    de: "Der Inhalt ist kein gültiges UTF-8.",
    fr: "Le contenu n’est pas de l’UTF-8 valide.",
    es: "El contenido no es UTF-8 válido.",
  },
  invalid_json: {
    de: "Der Inhalt ist kein gültiges JSON.",
    fr: "Le contenu n’est pas du JSON valide.",
    es: "El contenido no es JSON válido.",
  },
  invalid_plant: {
    de: "Die Angaben zur Pflanze sind ungültig.",
    fr: "Les données de la plante ne sont pas valides.",
    es: "Los datos de la planta no son válidos.",
  },
  invalid_id: {
    de: "Die Id ist keine ganze Zahl im erlaubten Bereich.",
    fr: "L’id n’est pas un nombre entier dans la plage admise.",
    es: "El id no es un número entero dentro del rango admitido.",
  },
  invalid_query: {
    de: "Die Abfrage ist ungültig.",
    fr: "La requête contient un paramètre non valide.",
    es: "La consulta contiene un parámetro no válido.",
  },
  invalid_precondition: {
    de: "Die Bedingung der Anfrage ist ungültig.",
    fr: "La condition de la requête n’est pas valide.",
    es: "La condición de la solicitud no es válida.",
  },
  invalid_body: {
    de: "Die Angaben sind ungültig.",
    fr: "Les données ne sont pas valides.",
    es: "Los datos no son válidos.",
  },
  invalid_encoding: {
    de: "Der Inhalt ist beschädigt oder unvollständig.",
    fr: "Le contenu est endommagé ou incomplet.",
    es: "El contenido está dañado o incompleto.",
  },
  token_missing: {
    de: "Es wurde kein Token gesendet.",
    fr: "Aucun jeton n’a été envoyé.",
    es: "No se ha enviado ningún token.",
  },
  token_invalid: {
    de: "Das Token ist unbekannt oder widerrufen.",
    fr: "Le jeton est inconnu ou révoqué.",
    es: "El token es desconocido o está revocado.",
  },
  token_expired: {
    de: "Das Token ist abgelaufen.",
    fr: "Le jeton a expiré.",
    es: "El token ha caducado.",
  },
  insufficient_scope: {
    de: "Dieses Token erlaubt das nicht.",
    fr: "Ce jeton ne le permet pas.",
    es: "Este token no lo permite.",
  },
  tag_not_permitted: {
    de: "Dieses Token gilt nur für Pflanzen mit bestimmten Schlagwörtern; nichts wurde geändert.",
    fr: "Ce jeton ne vaut que pour les plantes avec certains mots-clés ; rien n’a été modifié.",
    es: "Este token solo vale para plantas con ciertas etiquetas; no se ha cambiado nada.",
  },
  token_confined: {
    de: "Dieses Token gilt nur für Pflanzen mit bestimmten Schlagwörtern, und das betrifft alle.",
    fr: "Ce jeton ne vaut que pour les plantes avec certains mots-clés, et cela les concerne toutes.",
    es: "Este token solo vale para plantas con ciertas etiquetas, y esto afecta a todas.",
  },
  id_taken: {
    de: "Eine andere Pflanze hat diese Id; nichts wurde geändert.",
    fr: "Une autre plante a cet id ; rien n’a été modifié.",
    es: "Otra planta tiene este id; no se ha cambiado nada.",
  },
  plant_not_found: {
    de: "Keine Pflanze hat diese Id.",
    fr: "Aucune plante n’a cet id.",
    es: "Ninguna planta tiene este id.",
  },
  precondition_failed: {
    de: "Die Pflanze wurde inzwischen geändert; nichts wurde überschrieben.",
    fr: "La plante a été modifiée entre-temps ; rien n’a été écrasé.",
    es: "La planta ha cambiado entretanto; no se ha sobrescrito nada.",
  },
  changes_gone: {
    de: "Diese Änderungen sind nicht mehr im Journal.",
    fr: "Ces modifications ne sont plus dans le journal.",
    es: "Estos cambios ya no están en el historial.",
  },
  token_not_found: {
    de: "Dieses Token gibt es nicht.",
    fr: "Ce jeton n’existe pas.",
    es: "Este token no existe.",
  },
  token_name_taken: {
    de: "Ein Token in Gebrauch hat diesen Namen; nichts wurde geändert.",
    fr: "Un jeton en service porte ce nom ; rien n’a été modifié.",
    es: "Un token en uso tiene este nombre; no se ha cambiado nada.",
  },
  last_manager: {
    de: "Das ist das letzte Token, das Token verwalten darf. Vor dem Widerruf ein anderes erstellen.",
    fr: "C’est le dernier jeton qui peut gérer les jetons. En créer un autre avant de le révoquer.",
    es: "Es el último token que puede gestionar tokens. Crear otro antes de revocarlo.",
  },
  webhook_not_found: {
    de: "Diesen Webhook gibt es nicht.",
    fr: "Ce webhook n’existe pas.",
    es: "Este webhook no existe.",
  },
  webhook_name_taken: {
    de: "Ein Webhook hat diesen Namen; nichts wurde geändert.",
    fr: "Un webhook porte ce nom ; rien n’a été modifié.",
    es: "Un webhook tiene este nombre; no se ha cambiado nada.",
  },
  store_full: {
    de: "Die Höchstzahl der Pflanzen ist erreicht; nichts wurde gespeichert.",
    fr: "Le nombre maximal de plantes est atteint ; rien n’a été enregistré.",
    es: "Se ha alcanzado el máximo de plantas; no se ha guardado nada.",
  },
  webhooks_full: {
    de: "Die Höchstzahl der Webhooks ist erreicht; zuerst einen löschen.",
    fr: "Le nombre maximal de webhooks est atteint ; en supprimer un d’abord.",
    es: "Se ha alcanzado el máximo de webhooks; primero hay que eliminar uno.",
  },
  range_too_large: {
    de: "Die Änderungen betreffen zu viele Pflanzen für eine Vorschau.",
    fr: "Les modifications concernent trop de plantes pour un aperçu.",
    es: "Los cambios afectan a demasiadas plantas para una vista previa.",
  },
  transaction_too_large: {
    de: "Die Pflanzen sind zu groß für eine einzige Transaktion; nichts wurde geändert.",
    fr: "Les plantes sont trop volumineuses pour une seule transaction ; rien n’a été modifié.",
    es: "Las plantas son demasiado grandes para una sola transacción; no se ha cambiado nada.",
  },
  job_running: {
    de: "Eine andere Aufgabe dieses Namens läuft; nichts wurde geändert.",
    fr: "Une autre tâche de ce nom est en cours ; rien n’a été modifié.",
    es: "Otra tarea con este nombre está en curso; no se ha cambiado nada.",
  },
  jobs_full: {
    de: "Es laufen zu viele Aufgaben; warten, bis eine endet, oder eine anhalten.",
    fr: "Trop de tâches sont en cours ; attendre la fin de l’une d’elles, ou en arrêter une.",
    es: "Hay demasiadas tareas en curso; esperar a que termine una, o detenerla.",
  },
  job_not_found: {
    de: "Diese Aufgabe gibt es nicht.",
    fr: "Cette tâche n’existe pas.",
    es: "Esta tarea no existe.",
  },
  job_stopped: {
    de: "Die Aufgabe wurde angehalten; was sie geändert hat, bleibt.",
    fr: "La tâche a été arrêtée ; ce qu’elle a modifié reste.",
    es: "La tarea se ha detenido; lo que había cambiado se mantiene.",
  },
  malformed_request: {
    de: "Die Anfrage ist fehlerhaft.",
    fr: "La requête est mal formée.",
    es: "La solicitud está mal formada.",
  },
  path_not_found: {
    de: "Diese Adresse gibt es nicht.",
    fr: "Cette adresse n’existe pas.",
    es: "Esta dirección no existe.",
  },
  method_not_allowed: {
    de: "Diese Adresse lässt das nicht zu.",
    fr: "Cette adresse ne l’admet pas.",
    es: "Esta dirección no lo admite.",
  },
  url_too_long: {
    de: "Die Adresse ist zu lang.",
    fr: "L’adresse est trop longue.",
    es: "La dirección es demasiado larga.",
  },
  unsupported_media_type: {
    de: "Dieses Format wird nicht angenommen.",
    fr: "Ce format n’est pas accepté.",
    es: "No se acepta este formato.",
  },
  unsupported_encoding: {
    de: "Diese Komprimierung wird nicht angenommen.",
    fr: "Cette compression n’est pas acceptée.",
    es: "No se acepta esta compresión.",
  },
  body_too_large: {
    de: "Die Daten sind zu groß.",
    fr: "Les données sont trop volumineuses.",
    es: "Los datos son demasiado grandes.",
  },
  body_too_slow: {
    de: "Die Daten kamen nicht rechtzeitig an.",
    fr: "Les données ne sont pas arrivées à temps.",
    es: "Los datos no han llegado a tiempo.",
  },
  body_incomplete: {
    de: "Die Verbindung endete, bevor alle Daten ankamen.",
    fr: "La connexion s’est terminée avant la fin des données.",
    es: "La conexión ha terminado antes que los datos.",
  },
  rate_limited: {
    de: "Zu viele Anfragen mit diesem Token; später erneut versuchen.",
    fr: "Trop de requêtes avec ce jeton ; réessayer plus tard.",
    es: "Demasiadas solicitudes con este token; reintentar más tarde.",
  },
  expectation_failed: {
    de: "Eine Kopfzeile der Anfrage wird nicht angenommen.",
    fr: "Un en-tête de la requête n’est pas accepté.",
    es: "No se acepta una cabecera de la solicitud.",
  },
  internal: {
    de: "Interner Fehler; das Protokoll des Dienstes nennt die Ursache.",
    fr: "Erreur interne ; le journal du service en donne la cause.",
    es: "Error interno; el registro del servicio indica la causa.",
  },
  overloaded: {
    de: "Der Dienst ist überlastet; nichts wurde gespeichert.",
    fr: "Le service est surchargé ; rien n’a été enregistré.",
    es: "El servicio está sobrecargado; no se ha guardado nada.",
  },
  store_unavailable: {
    de: "Der Bestand ist vorübergehend nicht erreichbar.",
    fr: "Les données sont momentanément indisponibles.",
    es: "Los datos no están disponibles por el momento.",
  },
  store_busy: {
    de: "Der Dienst war zu lange beschäftigt; nichts wurde gespeichert.",
    fr: "Le service est resté trop longtemps occupé ; rien n’a été enregistré.",
    es: "El servicio ha estado ocupado demasiado tiempo; no se ha guardado nada.",
  },
  shutting_down: {
    de: "Der Dienst wird beendet.",
    fr: "Le service s’arrête.",
    es: "El servicio se está deteniendo.",
  },
  disk_low: {
    de: "Es ist zu wenig Speicherplatz frei; nichts wurde gespeichert.",
    fr: "Il reste trop peu d’espace disque ; rien n’a été enregistré.",
    es: "Queda muy poco espacio en disco; no se ha guardado nada.",
  },
  issuer_unavailable: {
    de: "Die Schlüssel des Anmeldedienstes sind nicht erreichbar.",
    fr: "Les clés du service de connexion sont inaccessibles.",
    es: "No se puede acceder a las claves del servicio de inicio de sesión.",
  },
  store_down: {
    de: "Der Bestand ist nicht erreichbar oder gesperrt; nichts wurde gespeichert.",
    fr: "Les données sont inaccessibles ou verrouillées ; rien n’a été enregistré.",
    es: "No se puede acceder a los datos o están bloqueados; no se ha guardado nada.",
  },
  store_refused: {
    de: "Die Datenbank weist den Dienst ab, bis jemand vom Betrieb eingreift; nichts wurde gespeichert.",
    fr: "La base de données refuse le service jusqu’à l’intervention d’un opérateur ; rien n’a été enregistré.",
    es: "La base de datos rechaza el servicio hasta que intervenga un operador; no se ha guardado nada.",
  },
} as const satisfies Record<ErrorName, Record<Exclude<Language, "en">, string>>;

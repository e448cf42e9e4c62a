UPDATE task SET state = 1, due = ?2, attempt = attempt + 1, worker = ?3, fence = ?4
WHERE id = ?1 AND state = 0

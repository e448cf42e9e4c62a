UPDATE task SET state = 2, finished_at = ?2
WHERE id = ?1 AND state = 1 AND worker = ?3 AND fence = ?4

UPDATE run SET state = 2, finished_at = ?2 WHERE id = ?1 AND state = 1

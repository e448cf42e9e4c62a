//! How often files are looked at.

use super::*;
use crate::{TaskHandle, condition};
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinSet;

const TASKS: usize = 1_000;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(5);

/// Tasks that wait, each for a file.
struct Crowd {
    pool: SlotPool,
    tasks: JoinSet<()>,
}

impl Crowd {
    /// Begins to wait.
    fn new(every: Duration, path: impl Fn(usize) -> PathBuf) -> Self {
        let pool = SlotPool::new(TASKS as u32).unwrap();
        let mut tasks = JoinSet::new();
        for nth in 0..TASKS {
            let (slot, path) = (pool.try_acquire(1).unwrap(), path(nth));
            tasks.spawn(async move {
                let handle = TaskHandle::new(slot);
                handle.defer_until(condition::file(path), every).jitter(0.0).await.unwrap();
            });
        }
        Crowd { pool, tasks }
    }

    fn looks(&self) -> usize {
        lock(&self.pool.tide().probes).tally.begun
    }

    /// Until the first looks are over and have said no.
    async fn all_wait(&self) {
        let under_way = || {
            let tally = &lock(&self.pool.tide().probes).tally;
            tally.begun == 0 || tally.begun > tally.ended
        };
        while self.pool.in_use() > 0 || under_way() {
            tokio::task::yield_now().await;
        }
    }
}

/// One thousand tasks that wait for one file make one probe per interval.
#[tokio::test(start_paused = true)]
async fn a_thousand_tasks_waiting_for_one_file_make_one_probe_per_interval() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    let crowd = Crowd::new(EVERY, |_| path.clone());
    crowd.all_wait().await;
    assert_eq!(crowd.looks(), 1, "all came before the first");
    tokio::time::sleep(EVERY / 2).await;
    for interval in 1..=10 {
        tokio::time::sleep(EVERY).await;
        crowd.all_wait().await;
        assert_eq!(crowd.looks(), 1 + interval);
    }
    assert_eq!(crowd.tasks.len(), TASKS, "all of them wait");
}

/// One thousand that wait for different files make at most as many probes at once as the limit says.
#[tokio::test(start_paused = true)]
async fn a_thousand_tasks_waiting_for_different_files_make_at_most_the_limit_of_probes_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let crowd = Crowd::new(EVERY, |nth| folder.path().join(nth.to_string()));
    let at_once = || lock(&crowd.pool.tide().probes).tally.most;
    while crowd.looks() < TASKS {
        tokio::task::yield_now().await;
    }
    crowd.all_wait().await;
    assert!((1..=PROBE_LIMIT as usize).contains(&at_once()), "{} at once", at_once());
    tokio::time::sleep(EVERY * 2).await;
    crowd.all_wait().await;
    assert!(crowd.looks() >= TASKS * 2, "{} looks", crowd.looks());
    assert_eq!(crowd.tasks.len(), TASKS, "all of them wait");
    assert!(at_once() <= PROBE_LIMIT as usize, "{} at once", at_once());
}

#[cfg(all(feature = "watch", target_os = "linux"))]
mod watched {
    use super::*;
    use std::fs;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Far more than any machine needs for what is waited for here.
    const ENOUGH: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_thousand_tasks_are_told_of_one_file_with_one_look() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.csv");
        let mut crowd = Crowd::new(HOUR, |_| path.clone());
        crowd.all_wait().await;
        assert_eq!(crowd.looks(), 1);
        fs::write(&path, "").unwrap();
        let all = async { while crowd.tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(ENOUGH, all).await.expect("all are told");
        assert_eq!(crowd.looks(), 2);
    }

    /// Each of the events below is worth a look, and none makes the file. The last is not lost.
    #[tokio::test]
    async fn a_burst_of_events_is_not_a_burst_of_looks() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        let began = std::time::Instant::now();
        let mut crowd = Crowd::new(HOUR, |_| inner.join("deeper/in.csv"));
        crowd.all_wait().await;
        for _ in 0..500 {
            fs::create_dir(&inner).unwrap();
            fs::remove_dir(&inner).unwrap();
            tokio::task::yield_now().await;
        }
        fs::create_dir_all(inner.join("deeper")).unwrap();
        fs::write(inner.join("deeper/in.csv"), "").unwrap();
        let all = async { while crowd.tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(ENOUGH, all).await.expect("the last event leads to a look");
        let most = 2 + began.elapsed().div_duration_f64(watch::GAP) as usize;
        assert!(crowd.looks() <= most, "{} looks where {most} may be", crowd.looks());
    }

    /// The intervals are a net of their own: looks in between neither delay nor stretch them.
    #[tokio::test]
    async fn an_early_look_leaves_the_intervals_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        let crowd = Crowd::new(HOUR, |_| inner.join("in.csv"));
        let due = || lock(&crowd.pool.tide().probes).due_first();
        crowd.all_wait().await;
        let before = due();
        fs::create_dir(&inner).unwrap();
        let looked = async {
            while crowd.looks() < 2 {
                tokio::task::yield_now().await;
            }
            crowd.all_wait().await;
        };
        tokio::time::timeout(ENOUGH, looked).await.expect("the folder is told");
        assert_eq!(due(), before);
    }
}

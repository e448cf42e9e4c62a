//! Stopping while the store fails, in every way: it ends in time and says what could not be stored.

use super::faults::{Faulty, Outage};
use super::gates::{Gates, fake_clock, on_paused_time, until_kind, with_gates};
use super::support::{Place, until};
use std::sync::Arc;
use std::time::Duration;
use tidegate::engine::{SubmitError, WaitRunError};
use tidegate::error::StoreError;
use tidegate::{Engine, RunId, ShutdownReport};
use tidegate_core::lifecycle::Kind;
use tokio::time::Instant;

const OUTAGES: [Outage; 4] = [Outage::Fails, Outage::Unusable, Outage::Unknown, Outage::Hangs];

/// What a body may still do when the engine stops.
const GRACE: Duration = Duration::from_secs(20);

/// An engine whose store fails from now on: one task has ended since, one waits, one computes.
struct BrokenEngine {
    engine: Engine,
    faulty: Arc<Faulty>,
    ended: RunId,
    waits: RunId,
    computes: RunId,
}

impl BrokenEngine {
    async fn new(outage: Outage) -> Self {
        let (faulty, gates) = (Faulty::on(&Place::memory()).await, Gates::default());
        let builder = faulty.engine().slots(2).clock(fake_clock());
        let engine = with_gates(builder, &gates).start().await.unwrap();
        let waits = engine.submit("wait", "never").await.unwrap().id();
        until_kind(engine.store(), waits, Kind::Deferred).await;
        let ended = engine.submit("hold", "a").await.unwrap().id();
        let computes = engine.submit("hold", "never").await.unwrap().id();
        gates.arrived("a", 1).await;
        gates.arrived("never", 2).await;
        faulty.set_outage(Some(outage));
        gates.open("a");
        until("its end is reported here", async || engine.metrics().succeeded_total == 1).await;
        BrokenEngine { engine, faulty, ended, waits, computes }
    }

    /// The report names all three, and nothing has come to the store.
    async fn is_told(&self, report: &ShutdownReport, outage: Outage) {
        let mut all = [(self.ended, "hold"), (self.computes, "hold"), (self.waits, "wait")]
            .map(|(run, task)| (run, task.to_owned()));
        all.sort();
        assert_eq!(report.unstored, all, "{outage:?}");
        assert_eq!(report.unstored_total, 3);
        let error = report.store_error.as_deref().expect("it is said why");
        let words = if outage == Outage::Hangs { "no answer for" } else { "no room" };
        assert!(error.contains(words), "{outage:?}: {error}");
        self.faulty.set_outage(None);
        assert_eq!(self.engine.store().counts().await.unwrap().running, 3, "{outage:?}");
    }
}

on_paused_time! {
    async fn shutdown_returns_ten_seconds_after_its_grace_at_the_latest(_place: Place) {
        for outage in OUTAGES {
            let broken = BrokenEngine::new(outage).await;
            let begun = Instant::now();
            let report = broken.engine.shutdown(GRACE).await;
            let took = begun.elapsed();
            assert!(took > GRACE, "what computes has its grace: {outage:?}: {took:?}");
            assert!(took <= GRACE + Duration::from_secs(10), "{outage:?}: {took:?}");
            broken.is_told(&report, outage).await;
        }
    }

    async fn shutdown_now_returns_within_five_seconds(_place: Place) {
        for outage in OUTAGES {
            let broken = BrokenEngine::new(outage).await;
            let begun = Instant::now();
            let report = broken.engine.shutdown_now().await;
            let took = begun.elapsed();
            assert!(took <= Duration::from_secs(5), "{outage:?}: {took:?}");
            broken.is_told(&report, outage).await;
        }
    }

    async fn shutdown_now_shortens_a_shutdown_that_is_under_way(_place: Place) {
        let broken = BrokenEngine::new(Outage::Hangs).await;
        let engine = broken.engine.clone();
        let patient = tokio::spawn(async move { engine.shutdown(GRACE).await });
        broken.engine.closing().await;
        let begun = Instant::now();
        let report = broken.engine.shutdown_now().await;
        assert!(begun.elapsed() <= Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(patient.await.unwrap(), report);
    }

    async fn a_store_that_recovers_during_the_shutdown_is_told_everything(_place: Place) {
        for outage in [Outage::Fails, Outage::Unusable, Outage::Unknown] {
            let broken = BrokenEngine::new(outage).await;
            let engine = broken.engine.clone();
            let stopping = tokio::spawn(async move { engine.shutdown(GRACE).await });
            tokio::time::sleep(GRACE + Duration::from_secs(6)).await;
            broken.faulty.set_outage(None);
            let report = stopping.await.unwrap();
            assert_eq!((report.unstored_total, report.unstored), (0, vec![]), "{outage:?}");
            assert_eq!(report.store_error, None);
            assert_eq!(report.finished, 0, "it had ended before");
            assert_eq!(report.handed_back.len(), 2);
            assert_eq!(broken.engine.store().counts().await.unwrap().running, 0);
        }
    }

    async fn an_engine_with_nothing_to_report_does_not_wait_for_a_store_that_fails(_place: Place) {
        for outage in [Outage::Fails, Outage::Unusable, Outage::Unknown] {
            let faulty = Faulty::on(&Place::memory()).await;
            let engine = faulty.engine().clock(fake_clock()).connect().await.unwrap();
            faulty.set_outage(Some(outage));
            let noticed = async || engine.metrics().failed_requests_total > 0;
            until("the store is seen to fail", noticed).await;
            let begun = Instant::now();
            assert_eq!(engine.shutdown(GRACE).await, ShutdownReport::default());
            assert!(begun.elapsed() <= Duration::from_millis(10), "{:?}", begun.elapsed());
        }
    }

    async fn callers_are_told_when_a_worker_gives_up_and_afterwards(_place: Place) {
        let broken = BrokenEngine::new(Outage::Hangs).await;
        let BrokenEngine { engine, waits, .. } = &broken;
        let run = engine.run(*waits).await.unwrap();
        let [waiting, cancelling] = [run.clone(), run.clone()];
        let waiting = tokio::spawn(async move { waiting.wait().await.map(|_| ()) });
        let cancelling = tokio::spawn(async move { cancelling.cancel().await });
        let submitting = engine.submit("hold", "b").into_future();
        let submitting = tokio::spawn(submitting);
        tokio::task::yield_now().await;
        engine.shutdown_now().await;
        assert!(matches!(waiting.await.unwrap(), Err(WaitRunError::Closed)));
        let error = cancelling.await.unwrap().unwrap_err();
        let words = "it is unknown whether the store has done it: the engine has stopped";
        assert_eq!(error.to_string(), words);
        let error = submitting.await.unwrap().unwrap_err();
        assert!(matches!(error, SubmitError::Store(StoreError::Unknown(_))), "{error}");

        assert!(matches!(run.wait().await, Err(WaitRunError::Closed)));
        assert!(matches!(engine.submit("hold", "b").await, Err(SubmitError::Closed)));
        let error = run.cancel().await.unwrap_err();
        assert_eq!(error.to_string(), "the store could not do it: the engine has stopped");
    }

    async fn a_caller_whose_outcome_stays_unknown_is_told_so(_place: Place) {
        let broken = BrokenEngine::new(Outage::Unknown).await;
        let begun = Instant::now();
        let error = broken.engine.submit("hold", "b").await.unwrap_err();
        assert!(matches!(error, SubmitError::Store(_)), "{error}");
        assert!(begun.elapsed() <= Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    async fn a_failing_store_is_told_once_and_so_is_that_it_works_again(_place: Place) {
        let faulty = Faulty::on(&Place::memory()).await;
        let engine = faulty.engine().clock(fake_clock()).start().await.unwrap();
        let mut changes = engine.health_changes();
        assert!(engine.health().is_healthy());
        for (outage, words) in [
            (Outage::Fails, "the store could not do it: no room"),
            (Outage::Hangs, "it is unknown whether the store has done it: no answer for 10s"),
        ] {
            faulty.set_outage(Some(outage));
            let health = changes.next().await.unwrap();
            assert_eq!(health.store_error.unwrap().to_string(), words);
            let quiet = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
            assert!(quiet.is_err(), "once");
            if outage == Outage::Fails {
                faulty.set_outage(None);
                assert!(changes.next().await.unwrap().is_healthy());
                assert!(engine.health().is_healthy());
            }
        }
        engine.shutdown(Duration::ZERO).await;
        assert!(changes.next().await.is_none());
    }
}

//! A worker: does what is submitted to its queues, until it is told to end.

use crate::file::ParallelLimit;
use crate::plan::{ITEMS, WAIT};
use crate::run::{self, End, engine_config, not_started};
use crate::stopping::{Asked, Stopping, by_itself};
use crate::store::{self, Place};
use crate::tell::{self, Fact, How, Lines, Teller, Try, Usual, Who};
use crate::view::cause;
use crate::waves::{count, plain};
use crate::{Failure, args, health, submit, suspend};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use tidegate::engine::{Happened, What};
use tidegate::{Engine, Event, Retention, RunId, TaskError, Workflow};

/// So many workflows are remembered.
const REMEMBERED_MAX: usize = 64;

/// Works until it is told to end.
///
/// # Errors
/// It cannot begin.
pub(crate) fn work(args: &args::Worker) -> Result<End, Failure> {
    let limit = args.slots().map_err(Failure::Wrong)?;
    let place = store::nearest(args.store.as_deref())?;
    if place.is_memory() {
        let what = "nobody can submit to memory: from outside; name a file with --store";
        return Err(Failure::Wrong(what.to_owned()));
    }
    place.prepare()?;
    run::on_runtime(serve(args, limit, place))
}

async fn serve(args: &args::Worker, limit: ParallelLimit, place: Place) -> Result<End, Failure> {
    let mut asked = Asked::listen().map_err(|error| Failure::Undone(error.to_string()))?;
    let retention = Retention { runs: Some(store::KEPT), ..Retention::default() };
    let builder = Engine::builder(&place.address).config(engine_config());
    let builder = builder.queues(&args.queue).retention(retention);
    let cpus = args::cpus();
    let builder = match limit {
        ParallelLimit::Between(min, max) => builder.slots_between(min, max),
        limit => builder.slots(limit.most(cpus)),
    };
    let address = place.address.clone();
    let remembered = Remembered::default();
    let find = move |_: &str, input: Option<&[u8]>| remembered.find(&place, input);
    let (teller, writer) =
        tell::start(&Usual::plain(args.show), Lines::All).map_err(Failure::Wrong)?;
    let starting = builder.find_workflows(find).log_overflow(Arc::new(teller.clone())).start();
    let engine = asked.unless_told(async { starting.await.map_err(not_started) }).await?;
    let mut events = engine.subscribe();
    asked.guard_engine(&engine, &teller);
    health::tell_of_trouble(&engine, &teller);
    suspend::listen(&engine, &teller).map_err(|error| Failure::Undone(error.to_string()))?;
    let mut view = View { engine: engine.clone(), teller, began: HashSet::new() };
    let (slots, queues) = (count(limit.most(cpus) as usize, "slot"), args.queue.join(", "));
    view.teller.line(format!("serving {queues} of {address} with {slots}; end it with Ctrl-C"));
    let mut stopping = Stopping::new(&engine, &view.teller);
    loop {
        tokio::select! {
            biased;
            told = asked.next() => stopping.told(told),
            event = events.next() => match event {
                Ok(Some(event)) => view.hear(&event),
                Ok(None) => break,
                Err(missed) => {
                    // Some of these may have ended since.
                    view.began.clear();
                    view.teller.tell(Fact::Missed(missed.count));
                }
            },
        }
    }
    let report = stopping.stopped().await;
    view.teller.all_ended();
    let end = match (stopping.how_told(), report) {
        // Nothing was left undone.
        (Some(_), Some(report)) if report.handed_back.is_empty() && report.unstored_total == 0 => {
            End::Succeeded
        }
        (Some(told), _) => told,
        (None, _) => return Err(by_itself()),
    };
    run::say_all(writer, &mut asked, end).await
}

/// Workflows that were found, by what their runs work on.
#[derive(Default)]
struct Remembered(Mutex<HashMap<Box<[u8]>, Workflow>>);

impl Remembered {
    fn find(&self, place: &Place, input: Option<&[u8]>) -> Result<Workflow, TaskError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = input.unwrap_or_default();
        if let Some(workflow) = all.get(key) {
            return Ok(workflow.clone());
        }
        let workflow = submit::found(place, input)?;
        if all.len() == REMEMBERED_MAX {
            all.clear();
        }
        all.insert(key.into(), workflow.clone());
        Ok(workflow)
    }
}

/// Makes of what happens what is told.
struct View {
    engine: Engine,
    teller: Teller,
    /// What is under way.
    began: HashSet<(RunId, String)>,
}

impl View {
    fn hear(&mut self, event: &Event) {
        let run = event.run;
        let who = |task: &str| Who::task(format!("{run}/{task}"));
        // Nobody says here of how many it is one.
        let attempt = |number| Try { number, of: number };
        let log = |task: &str, number| self.engine.log(run, task, number);
        match &event.what {
            What::Began { task, attempt: number, slot } => {
                self.began.insert((run, task.clone()));
                if part_of(task).is_none() {
                    let (who, attempt, log) = (who(task), attempt(*number), log(task, *number));
                    self.teller.tell(Fact::Began { who, attempt, slot: *slot, log });
                }
            }
            What::Deferred { task, wait } => {
                let who = who(part_of(task).unwrap_or(task));
                self.teller.tell(Fact::Waits { who, what: plain(wait) });
            }
            What::Ended { task, how, error, attempt: number, .. } => {
                let was_under_way = self.began.remove(&(run, task.clone()));
                let why = error.as_deref().map(cause).unwrap_or_default();
                let (part, attempt, log) = (part_of(task), attempt(*number), log(task, *number));
                let who = who(part.unwrap_or(task));
                let how = match how {
                    Happened::Succeeded => How::Succeeded,
                    Happened::Failed => How::Failed,
                    Happened::TimedOut => How::TimedOut,
                    Happened::Cancelled => How::Cancelled,
                    Happened::Retried => {
                        let pause = "later".to_owned();
                        return self.teller.tell(Fact::Retried { who, attempt, why, pause, log });
                    }
                    Happened::HandedBack if was_under_way => {
                        return self.teller.tell(Fact::Interrupted { who });
                    }
                    _ => return,
                };
                if part.is_none() || matches!(how, How::Failed | How::TimedOut) {
                    self.teller.tell(Fact::Ended { who, how, attempt, why, log });
                }
            }
            _ => {}
        }
    }
}

/// The task of whom this one only waits, or finds the items.
fn part_of(task: &str) -> Option<&str> {
    task.strip_suffix(WAIT).or(task.strip_suffix(ITEMS))
}

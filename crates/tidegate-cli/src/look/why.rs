//! Why tasks do not run: all reasons, with who and what is in the way.

use super::target::{self, Target, called};
use super::text::paragraph;
use super::whole::{Whole, state, whole_name};
use super::{Look, args, at, document, millis, time, unusable};
use crate::run::End;
use crate::tell::Format;
use crate::{Failure, print};
use serde_json::{Value, json};
use tidegate::core::explain::Rough;
use tidegate::core::graph::TaskIndex;
use tidegate::core::store::WhyUnserved;
use tidegate::engine::{Full, Kind, LimitKey, Scope, Why, WorkerId};
use tidegate::{Explanation, RunId};

/// So many tasks are explained; the rest is counted.
const EXPLAINED_MAX: usize = 50;

/// A task with the reasons why it does not run.
struct Explained {
    explanation: Explanation,
    /// The worker that has it, and has died.
    died: Option<WorkerId>,
}

/// What was found out.
#[derive(Default)]
struct Found {
    /// How the run is called and stands.
    run: String,
    id: String,
    state: String,
    explanations: Vec<Explained>,
    /// Workers that have died and were not taken over from so far.
    dead: Vec<WorkerId>,
    /// How many more do not run.
    more: usize,
}

pub(crate) fn why(args: &args::Why) -> Result<End, Failure> {
    let found = at(&args.store, async |look| {
        match target::target(&look.engine, args.task.as_deref()).await? {
            Target::Run(whole) => {
                let mut found = Found::of(look, &whole).await?;
                found.explain_idle(look, &whole).await?;
                Ok(found)
            }
            Target::Task(whole, parts) => {
                let mut found = Found::of(look, &whole).await?;
                found.explain(look, &whole, whole.stands(&parts)).await?;
                if let Some(items) = whole.items(&look.engine, &parts).await? {
                    found.explain_idle(look, &Whole::new(items)).await?;
                }
                Ok(found)
            }
            Target::Item(whole, items, item) => {
                let mut found = Found::of(look, &whole).await?;
                found.explain(look, &Whole::new(items), item).await?;
                Ok(found)
            }
        }
    })?;
    print(&match args.written.format {
        Format::Text => found.text(),
        Format::Json => document(found.json()),
    })
}

impl Found {
    async fn of(look: &Look, whole: &Whole) -> Result<Self, Failure> {
        let run = &whole.view.run;
        let (id, state) = (run.id.to_string(), state(run).to_string());
        let dead = look.engine.store().dead().await.map_err(unusable)?;
        Ok(Found { run: called(run), id, state, dead, ..Found::default() })
    }

    async fn explain(
        &mut self,
        look: &Look,
        whole: &Whole,
        task: TaskIndex,
    ) -> Result<(), Failure> {
        if self.explanations.len() == EXPLAINED_MAX {
            self.more += 1;
            return Ok(());
        }
        let (run, plan) = (whole.view.run.id, whole.plan());
        // By its number, since a run may have a hundred thousand tasks. What only a worker knows of
        // its own slots cannot be known here.
        let looked = look.engine.store().explain(whole.task(task).key, look.now).await;
        let gone = || Failure::Undone(format!("run {run} is no longer in the store"));
        let mut explanation = Explanation::from(looked.map_err(unusable)?.ok_or_else(gone)?);
        explanation.task = whole_name(plan, task).to_owned();
        for why in &mut explanation.reasons {
            if let Why::BlockedBy { tasks, .. } = why {
                speak_of_whole(whole, tasks);
            }
        }
        let died = whole.owned_by(task, &self.dead);
        self.explanations.push(Explained { explanation, died });
        Ok(())
    }

    /// Explains the tasks of a run that neither run nor have ended, and the items of those that have
    /// such.
    async fn explain_idle(&mut self, look: &Look, whole: &Whole) -> Result<(), Failure> {
        for parts in &whole.tasks {
            if let Some(items) = whole.items(&look.engine, parts).await? {
                Box::pin(self.explain_idle(look, &Whole::new(items))).await?;
                continue;
            }
            let task = whole.stands(parts);
            let kind = whole.kind(task);
            let runs = kind == Kind::Active && whole.owned_by(task, &self.dead).is_none();
            if !kind.is_terminal() && !runs {
                self.explain(look, whole, task).await?;
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        let Found { run, state, .. } = self;
        if self.explanations.is_empty() {
            return match state.as_str() {
                "open" | "paused" => format!("{run}: {state}; all that has not ended is running\n"),
                _ => format!("{run}: {state}\n"),
            };
        }
        let mut text = String::new();
        for Explained { explanation, died } in &self.explanations {
            let Explanation { task, kind, at, reasons, estimate, .. } = explanation;
            let kind = kind.as_str().replace('_', " ");
            text += &paragraph(&format!("{task} of {run}: {kind}"), "", "  ");
            for why in reasons {
                text += &paragraph(&why.seen_at(*at).to_string(), "- ", "  ");
            }
            if let Some(worker) = died {
                text += &paragraph(&died_text(*worker), "- ", "  ");
            }
            if let Some(estimate) = estimate {
                text += &format!("  estimate: in about {}\n", Rough(*estimate));
            }
        }
        if self.more > 0 {
            text += &format!("and {} more\n", self.more);
        }
        text
    }

    fn json(&self) -> Value {
        let tasks = self.explanations.iter().map(|Explained { explanation, died }| {
            let Explanation { run, task, kind, at, reasons, estimate, .. } = explanation;
            let died = died.map(|worker| {
                json!({ "reason": "process_died", "worker": worker.0, "text": died_text(worker) })
            });
            let reasons: Vec<Value> = reasons.iter().map(reason).chain(died).collect();
            json!({
                "run": run.to_string(),
                "task": task,
                "state": kind.as_str(),
                "at": time(*at),
                "reasons": reasons,
                "estimate_ms": estimate.map(millis),
            })
        });
        let tasks: Vec<Value> = tasks.collect();
        json!({ "run": self.id, "state": self.state, "tasks": tasks, "more": self.more })
    }
}

fn died_text(worker: WorkerId) -> String {
    format!(
        "the process of worker {} has died; whoever next works on the store takes its tasks over",
        worker.0
    )
}

/// Names tasks as the file has them, and where they stand.
fn speak_of_whole(whole: &Whole, tasks: &mut Vec<(String, Kind)>) {
    for (name, kind) in tasks.iter_mut() {
        let index = whole.plan().graph().find(name);
        let called = index.map(|index| whole_name(whole.plan(), index));
        if let Some(parts) = whole.tasks.iter().find(|parts| Some(parts.name.as_str()) == called) {
            (*name, *kind) = (parts.name.clone(), whole.kind(whole.stands(parts)));
        }
    }
    tasks.dedup_by(|one, other| one.0 == other.0);
}

/// A reason with what it names, and in words.
fn reason(why: &Why) -> Value {
    let (name, mut value) = data(why);
    value["reason"] = json!(name);
    value["text"] = json!(why.to_string());
    value
}

fn data(why: &Why) -> (&'static str, Value) {
    match why {
        Why::BlockedBy { tasks, open, when } => {
            let tasks =
                tasks.iter().map(|(name, kind)| json!({ "task": name, "state": kind.as_str() }));
            let tasks: Vec<Value> = tasks.collect();
            ("blocked_by", json!({ "tasks": tasks, "open": open, "when": when.to_string() }))
        }
        Why::NotBefore { at } => ("not_before", json!({ "at": time(*at) })),
        Why::BackOff { until, attempt, attempts, error } => {
            let until = time(*until);
            let value =
                json!({ "until": until, "attempt": attempt, "attempts": attempts, "error": error });
            ("back_off", value)
        }
        Why::Snoozed { until } => ("snoozed", json!({ "until": time(*until) })),
        Why::LimitFull(limit) => ("limit_full", full(limit)),
        Why::RateReached { limit, rate, wants, next, before } => {
            let mut value = named(limit);
            value["rate"] = json!({ "units": rate.units, "per_ms": millis(rate.per) });
            value["wants"] = json!(wants);
            value["next"] = time(*next);
            value["before"] = json!(before);
            ("rate_reached", value)
        }
        Why::LimitMissing { limit } => ("limit_missing", named(limit)),
        Why::NoSlot { queue, before, .. } => {
            ("no_slot", json!({ "queue": queue, "before": before }))
        }
        Why::Claimed { worker, since, .. } => {
            ("claimed", json!({ "worker": worker.0, "since": time(*since) }))
        }
        Why::Paused { scope, since } => {
            let scope = match scope {
                Scope::Store => json!({ "store": true }),
                Scope::Queue(queue) => json!({ "queue": queue }),
                Scope::Run(run) => json!({ "run": run.to_string() }),
            };
            ("paused", json!({ "scope": scope, "since": time(*since) }))
        }
        Why::Waits { what, since, until, worker } => {
            let (since, until) = (time(*since), until.map(time));
            let value = json!({ "what": what, "since": since, "until": until, "worker": worker.0 });
            ("waits", value)
        }
        Why::Parked { what, since, until } => {
            let (since, until) = (time(*since), until.map(time));
            ("parked", json!({ "what": what, "since": since, "until": until }))
        }
        Why::Retakes(limit) => ("retakes", full(limit)),
        Why::Quarantined { deaths, before } => {
            let task =
                |(run, name): &(RunId, String)| json!({ "run": run.to_string(), "task": name });
            let before: Vec<Value> = before.iter().map(task).collect();
            ("quarantined", json!({ "deaths": deaths, "before": before }))
        }
        Why::Unserved { queue, workflow, task, weight, why } => {
            let why = match why {
                WhyUnserved::Queue => "queue",
                WhyUnserved::Unknown => "unknown",
                WhyUnserved::TooHeavy { .. } => "too_heavy",
            };
            let value = json!({
                "queue": queue, "workflow": workflow, "task": task, "weight": weight, "why": why,
            });
            ("unserved", value)
        }
        Why::Stopping { by } => ("stopping", json!({ "by": by.to_string() })),
        Why::Running { worker, since } => {
            ("running", json!({ "worker": worker.0, "since": time(*since) }))
        }
        Why::Ended { kind, reason, at, error } => {
            let value = json!({
                "state": kind.as_str(),
                "ended_because": reason.map(|reason| reason.as_str()),
                "at": at.map(time),
                "error": error,
            });
            ("ended", value)
        }
        // What only the worker that is asked knows of itself; nobody asks one that serves nothing.
        _ => ("other", json!({})),
    }
}

fn named(limit: &LimitKey) -> Value {
    json!({ "limit": &*limit.name, "key": &*limit.key })
}

fn full(full: &Full) -> Value {
    let mut value = named(&full.limit);
    let holders = full.holders.iter().map(|holder| {
        let (run, since) = (holder.run.to_string(), time(holder.since));
        json!({ "run": run, "task": holder.name, "units": holder.units, "since": since })
    });
    value["holders"] = holders.collect();
    value["at_once"] = json!(full.at_once);
    value["wants"] = json!(full.wants);
    value["in_use"] = json!(full.in_use);
    value["before"] = json!(full.before);
    value
}

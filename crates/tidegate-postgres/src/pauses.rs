//! Pauses of runs, of queues and of the store.

use crate::batch::Parameter;
use crate::columns::to_timestamp;
use crate::error::Error;
use crate::loader::{FoundRows, SortedWants, Trip, WantLoader};
use std::collections::HashMap;
use std::time::Duration;
use tidegate_core::store::Scope;
use tidegate_core::want::{Loaded, Want};
use tokio_postgres::Row as PgRow;

/// The scope of a pause, as the number that is stored.
pub(crate) const RUN: i16 = 0;
/// See [`RUN`].
pub(crate) const QUEUE: i16 = 1;
/// See [`RUN`].
pub(crate) const STORE: i16 = 2;

const OPEN_PAUSES: &str = "SELECT named.scope, named.name, p.paused_at \
     FROM unnest($1::int2[], $2::text[]) AS named (scope, name) \
     CROSS JOIN LATERAL (SELECT p.paused_at FROM pause p WHERE p.scope = named.scope \
     AND p.name = named.name AND p.unpaused_at IS NULL LIMIT 1) p";

/// The pauses with the scopes $2 and the names $3 that are not over at the times $4 and have begun by the
/// times $5, each by its place $1.
const PAUSES: &str = "SELECT asked.place, p.paused_at, p.unpaused_at \
     FROM unnest($1::int8[], $2::int2[], $3::text[], $4::int8[], $5::int8[]) \
     AS asked (place, scope, name, begin, until) \
     JOIN pause p ON p.scope = asked.scope AND p.name = asked.name \
     AND p.paused_at < asked.until AND coalesce(p.unpaused_at, asked.until) > asked.begin";

/// The columns by which a pause is found.
pub(crate) fn name_pause(scope: &Scope) -> (i16, String) {
    match scope {
        Scope::Run(run) => (RUN, run.to_string()),
        Scope::Queue(queue) => (QUEUE, queue.clone()),
        Scope::Store => (STORE, String::new()),
    }
}

impl WantLoader<'_> {
    /// Pauses that are open, and the time that pauses took.
    pub(crate) async fn queue_pauses<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let (mut open, mut times) = (Vec::new(), Vec::new());
        for &want in &sorted.others {
            match want {
                Want::PauseStart(scope) => open.push((want, vec![name_pause(scope)])),
                Want::IsQueuePaused(queue) => {
                    let names = vec![(QUEUE, queue.to_string()), (STORE, String::new())];
                    open.push((want, names));
                }
                Want::PausedTime { .. } => times.push(want),
                _ => {}
            }
        }
        if !open.is_empty() {
            let names = || open.iter().flat_map(|(_, names)| names);
            let scopes: Vec<i16> = names().map(|(scope, _)| *scope).collect();
            let names: Vec<String> = names().map(|(_, name)| name.clone()).collect();
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                read_open_pauses(&open, &rows, found)
            };
            self.queue_statement(trip, OPEN_PAUSES, vec![Box::new(scopes), Box::new(names)], read)
                .await?;
        }
        if !times.is_empty() {
            let parameters = ask_paused_times(&times);
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                read_paused_times(&times, &rows, found)
            };
            self.queue_statement(trip, PAUSES, parameters, read).await?;
        }
        Ok(())
    }
}

/// A want, and the scopes and names of the pauses that it asks for.
type OpenPauses<'w> = (&'w Want, Vec<(i16, String)>);

fn read_open_pauses(
    open: &[OpenPauses<'_>],
    rows: &[PgRow],
    found: &mut FoundRows,
) -> Result<(), Error> {
    let mut starts: HashMap<(i16, String), i64> = HashMap::new();
    for row in rows {
        starts.insert((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
    }
    for (want, names) in open {
        let mut of_want = names.iter().filter_map(|name| starts.get(name).copied());
        let loaded = match want {
            Want::IsQueuePaused(_) => Loaded::Flag(of_want.next().is_some()),
            _ => Loaded::Instant(of_want.next().map(to_timestamp)),
        };
        found.add_answer((*want).clone(), loaded);
    }
    Ok(())
}

/// The parameters of [`PAUSES`]: for each want the run, the queue and the store.
fn ask_paused_times(wants: &[&Want]) -> Vec<Parameter> {
    let (mut places, mut scopes, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    for (place, want) in (0_i64..).zip(wants) {
        let Want::PausedTime { run, queue, from, to } = want else { continue };
        let asked = [(RUN, run.to_string()), (QUEUE, queue.to_string()), (STORE, String::new())];
        for (scope, name) in asked {
            places.push(place);
            scopes.push(scope);
            names.push(name);
            begins.push(from.as_micros());
            ends.push(to.as_micros());
        }
    }
    vec![Box::new(places), Box::new(scopes), Box::new(names), Box::new(begins), Box::new(ends)]
}

fn read_paused_times(wants: &[&Want], rows: &[PgRow], found: &mut FoundRows) -> Result<(), Error> {
    let mut stretches: Vec<Vec<(i64, Option<i64>)>> = vec![Vec::new(); wants.len()];
    for row in rows {
        let place: i64 = row.try_get(0)?;
        stretches[place as usize].push((row.try_get(1)?, row.try_get(2)?));
    }
    for (want, stretches) in wants.iter().zip(stretches) {
        let Want::PausedTime { from, to, .. } = want else { continue };
        let (from, to) = (from.as_micros(), to.as_micros());
        let cut = |(begin, end): (i64, Option<i64>)| (begin.max(from), end.unwrap_or(to).min(to));
        let covered = sum_covered(stretches.into_iter().map(cut).collect(), from);
        found.add_answer((*want).clone(), Loaded::Duration(covered));
    }
    Ok(())
}

/// The time that is covered by at least one of the stretches; none begins before `from`.
fn sum_covered(mut stretches: Vec<(i64, i64)>, from: i64) -> Duration {
    stretches.sort_unstable();
    let (mut covered, mut reached) = (0, from);
    for (begin, end) in stretches {
        covered += (end - begin.max(reached)).max(0);
        reached = reached.max(end);
    }
    Duration::from_micros(covered.unsigned_abs())
}

/// All statements, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[(&str, &str)] = &[("OPEN_PAUSES", OPEN_PAUSES), ("PAUSES", PAUSES)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_pauses_count_once() {
        let covered = |stretches: &[(i64, i64)]| sum_covered(stretches.to_vec(), 0).as_micros();
        assert_eq!(covered(&[]), 0);
        assert_eq!(covered(&[(5, 7), (0, 2)]), 4);
        assert_eq!(covered(&[(0, 10), (2, 3), (5, 12)]), 12);
        assert_eq!(covered(&[(4, 4), (6, 5)]), 0);
    }
}

//! Which of what commands have written is to be shown, and when.

use super::board::Before;
use super::follow::Follower;
use super::{Fact, How, Manner, Out, Show, State, Who};
use std::path::PathBuf;

impl State {
    /// What is to be shown of what a command writes.
    pub(super) fn push_output(&mut self, fact: &Fact, before: &Before, manner: Manner) {
        let follower = |who: &Who, log: &PathBuf| match manner.show {
            Show::Prefixed => {
                let label = crate::waves::plain(who.label());
                Some(Follower::prefixed(log.clone(), &label, manner.paint_out))
            }
            Show::Streamed => Some(Follower::streamed(log.clone())),
            _ => None,
        };
        match fact {
            Fact::Began { who, log: Some(log), .. } => {
                self.outs.extend(follower(who, log).map(Out::Follow));
            }
            Fact::Retried { who, log: Some(log), .. } => {
                let moved = self.overflow.take_moved(log);
                let follower = follower(who, log).map(|follower| follower.in_file(moved));
                self.outs.extend(follower.map(Out::Followed));
            }
            Fact::Interrupted { who } => {
                let Some(log) = &before.log else { return };
                let moved = self.overflow.take_moved(log);
                let follower = follower(who, log).map(|follower| follower.in_file(moved));
                self.outs.extend(follower.map(Out::Followed));
            }
            Fact::Ended { how: How::Skipped, .. } => {}
            // It has ended in the store, and only now is it told to.
            Fact::Ended { how: How::Cancelled, log: Some(log), .. } => {
                self.late.extend((manner.show == Show::Grouped).then(|| log.clone()));
            }
            Fact::Ended { who, how, log: Some(log), .. } => {
                let moved = self.overflow.take_moved(log);
                let follower = match manner.show {
                    Show::Grouped => Some(Follower::streamed(log.clone())),
                    Show::Failed if how.is_failure() => Some(Follower::streamed(log.clone())),
                    _ => follower(who, log),
                };
                let follower = follower.map(|follower| follower.in_file(moved));
                self.outs.extend(follower.map(Out::Followed));
            }
            _ => {}
        }
    }
}

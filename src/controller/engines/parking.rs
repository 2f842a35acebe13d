//! Puts engines to sleep and wakes them, off the loop, and reports the result to the pool as an event. The pool decides which
//! engine sleeps or wakes, and ends an engine that does not wake.

use std::time::Duration;

use crate::control::Control;
use crate::messages::{Message, ParkRequest, ParkingResult};
use crate::view::LoadStage;
use catalog::{CommandRecipe, Recipe, SleepCommands};
use engine::{SleepBy, Stage};
use pool::{Event, ReplicaId, Span};

/// The pool's own deadline for falling asleep is shorter; this one only ends a request that hangs.
const SLEEP_PATIENCE: Duration = Duration::from_secs(600);
const SLEEP_DEADLINE: Span = Span::from_secs(600);

impl Control {
    pub(crate) fn park(&mut self, replica: ReplicaId) -> Option<Event> {
        let Some((endpoint, by, _)) = self.sleeper(replica) else {
            let message = "its engine has no sleep mode".to_owned();
            return Some(Event::SleepFailed { replica, message });
        };
        // An engine that moves its weights may be silent for a while, and a sleeping engine says nothing.
        if let Some(facts) = self.engines.get(replica) {
            facts.activity.rest(true);
        }
        let node = self.node_of(replica);
        if let (Some(node), SleepBy::Commands { sleep, .. }) = (node, &by) {
            self.command_on(node, replica, true, sleep.clone(), SLEEP_DEADLINE);
            return None;
        }
        let (inbox, guardians) = (self.background.inbox(), self.engines.guardians());
        self.background.spawn(async move {
            // Noted first: a later controller must not take a sleeping engine for a serving one.
            if node.is_none() {
                guardians.note_sleep(replica, true).await;
            }
            let outcome = engine::fall_asleep(&endpoint, &by, SLEEP_PATIENCE).await;
            let request = ParkRequest::Sleep;
            let _ = inbox.send(Message::Parked(ParkingResult {
                replica,
                request,
                outcome,
            }));
        });
        None
    }

    pub(crate) fn wake_engine(&mut self, replica: ReplicaId, deadline: Span) -> Option<Event> {
        let Some((endpoint, by, health)) = self.sleeper(replica) else {
            let message = "its engine is gone, or has no sleep mode any more".to_owned();
            return Some(Event::WakeFailed { replica, message });
        };
        let (text, now) = ("waking".to_owned(), self.clock.now());
        let stage = LoadStage::new(Stage::Loading, None, Some(text), now);
        if let Some(facts) = self.engines.get_mut(replica) {
            facts.stage = Some(stage);
        }
        let node = self.node_of(replica);
        if let (Some(node), SleepBy::Commands { wake, .. }) = (node, &by) {
            self.command_on(node, replica, false, wake.clone(), deadline);
            return None;
        }
        let (inbox, guardians) = (self.background.inbox(), self.engines.guardians());
        let patience = Duration::from_millis(deadline.0);
        self.background.spawn(async move {
            let outcome = engine::wake(&endpoint, &by, &health, patience).await;
            if outcome.is_ok() && node.is_none() {
                guardians.note_sleep(replica, false).await;
            }
            let request = ParkRequest::Wake;
            let _ = inbox.send(Message::Parked(ParkingResult {
                replica,
                request,
                outcome,
            }));
        });
        None
    }

    fn sleeper(&self, replica: ReplicaId) -> Option<(engine::Endpoint, SleepBy, String)> {
        let facts = self.engines.get(replica)?;
        let entry = &self.models.get(facts.model)?.entry;
        let gate = self.engines.gate(replica)?;
        let by = match &entry.recipe {
            Recipe::Command(CommandRecipe {
                sleep: Some(commands),
                ..
            }) => {
                let fill = |template: &[String]| {
                    SleepCommands::render(template, "command", facts.pid?).ok()
                };
                SleepBy::Commands {
                    sleep: fill(&commands.sleep)?,
                    wake: fill(&commands.wake)?,
                }
            }
            recipe => SleepBy::Routes(recipe.parking()?),
        };
        let health = entry.recipe.ready_path().to_owned();
        Some((gate.endpoint.clone(), by, health))
    }

    pub(crate) fn parked(&mut self, parked: ParkingResult) {
        let ParkingResult {
            replica,
            request,
            outcome,
        } = parked;
        match (request, outcome) {
            (ParkRequest::Sleep, Ok(())) => {
                self.turn(Event::ReplicaAsleep { replica });
            }
            (ParkRequest::Sleep, Err(message)) => {
                self.turn(Event::SleepFailed { replica, message })
            }
            (ParkRequest::Wake, Ok(())) => {
                if let Some(facts) = self.engines.get_mut(replica) {
                    facts.stage = None;
                    facts.activity.rest(false);
                }
                self.turn(Event::ReplicaReady { replica });
            }
            (ParkRequest::Wake, Err(message)) => {
                tracing::warn!(%replica, message, "an engine did not wake");
                self.turn(Event::WakeFailed { replica, message });
            }
        }
        self.devices.look_again();
    }
}

//! The lines of a story about groups, classes and tokens. Produces events; the pool decides what follows.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::args::{Options, number};
use super::story::StoryRunner;
use pool::{Event, Group, GroupId, Groups, KeyId, ServiceClass, Ticket, Time, TokenCosts, Tokens};

/// The groups of a story and their members.
#[derive(Default)]
pub(super) struct StoryGroups {
    groups: Vec<Group>,
    members: Vec<(KeyId, GroupId)>,
}

impl StoryRunner {
    /// `group NAME [weight 2] [in PARENT] [reserved 200] [keys 1,2]`.
    pub(super) fn group(&mut self, args: &[&str], transcript: &mut String) -> Result<(), String> {
        let name = *args.get(1).ok_or("which group?")?;
        let options = Options::from_args(&args[2..])?;
        let all = &mut self.groups.groups;
        let fresh = all.iter().map(|group| group.id.0 + 1).max().unwrap_or(1);
        let parent = options.get("in").map(|parent| {
            let found = all.iter().find(|group| group.name == parent);
            let found = found.map(|group| group.id);
            found.ok_or_else(|| format!("no group {parent}"))
        });
        let id = GroupId(fresh);
        let group = Group {
            id,
            name: name.to_owned(),
            parent: parent.transpose()?,
            weight: options.number("weight")?.unwrap_or(1) as u32,
            reserved_permille: options.number("reserved")?.unwrap_or(0) as u32,
        };
        all.push(group);
        for key in options
            .get("keys")
            .into_iter()
            .flat_map(|keys| keys.split(','))
        {
            self.groups.members.push((KeyId(number(Some(&key))?), id));
        }
        let event = self.groups_event()?;
        self.feed(self.world.now, event, transcript);
        Ok(())
    }

    /// `ungroup NAME`.
    pub(super) fn ungroup(&mut self, rest: &[&str]) -> Result<Event, String> {
        let name = *rest.first().ok_or("which group?")?;
        let all = &mut self.groups.groups;
        let nth = all.iter().position(|group| group.name == name);
        let id = all
            .remove(nth.ok_or_else(|| format!("no group {name}"))?)
            .id;
        self.groups.members.retain(|(_, group)| *group != id);
        self.groups_event()
    }

    fn groups_event(&self) -> Result<Event, String> {
        let StoryGroups { groups, members } = &self.groups;
        let groups = Groups::new(groups.clone(), members.iter().copied());
        let groups = groups.map_err(|error| error.to_string())?;
        Ok(Event::GroupsSet { groups })
    }

    /// `ask 1 NAME [key 7] [class flex] [tokens 500+200]`.
    pub(super) fn ask(
        &mut self,
        at: Time,
        rest: &[&str],
        transcript: &mut String,
    ) -> Result<(), String> {
        let ticket = Ticket(number(rest.first())?);
        let options = Options::from_args(rest.get(2..).unwrap_or_default())?;
        let key = KeyId(options.number("key")?.unwrap_or(0));
        let model = self.named(rest.get(1))?;
        let mut events = vec![Event::RequestArrived { ticket, model, key }];
        let class = match options.get("class") {
            None | Some("default") => ServiceClass::Default,
            Some("flex") => ServiceClass::Flex,
            Some("priority") => ServiceClass::Priority,
            Some(other) => return Err(format!("`{other}` is not a class")),
        };
        let expected = options.get("tokens").map(tokens).transpose()?;
        if class != ServiceClass::Default || expected.is_some() {
            events.push(Event::RequestDescribed {
                ticket,
                class,
                expected: expected.unwrap_or_default(),
            });
        }
        self.feed_all(at, events, transcript);
        Ok(())
    }

    /// `takes 1 500+200`: request t1 has taken these tokens.
    pub(super) fn takes(&mut self, rest: &[&str]) -> Result<Event, String> {
        let ticket = Ticket(number(rest.first())?);
        let taken = tokens(rest.get(1).ok_or("how many tokens?")?)?;
        self.world.takes_tokens(ticket, taken);
        Ok(Event::TimerFired)
    }

    /// `costs NAME 100+2000`: the microseconds of a prompt token and of an output token.
    pub(super) fn token_costs(&self, rest: &[&str]) -> Result<Event, String> {
        let model = self.named(rest.first())?;
        let costs = tokens(rest.get(1).ok_or("what do tokens cost?")?)?;
        Ok(Event::TokensMeasured {
            model,
            costs: TokenCosts::new(costs.prompt, costs.output),
        })
    }
}

/// `500+200`: prompt and output.
fn tokens(text: &str) -> Result<Tokens, String> {
    let (prompt, output) = text
        .split_once('+')
        .ok_or_else(|| format!("`{text}` is not tokens such as 500+200"))?;
    Ok(Tokens {
        prompt: number(Some(&prompt))?,
        output: number(Some(&output))?,
    })
}

//! Storms of groups that share one model: random trees, weights, classes and request sizes, with clients that leave, wrong estimates,
//! absurd token counts, and groups that change while requests run. A referee checks the rules of sharing (F1 to F6).
//! One file because all steps of a storm change the same clients.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::group_referee::{GroupReferee, Path, Sharer};
use super::random::Random;
use super::timeline::{Scene, Timeline};
use super::world::World;
use pool::{
    Action, Bytes, DeviceId, DeviceReading, Event, Group, GroupId, Groups, KeyId, Limits, ModelId,
    ModelSpec, Pool, ReplicaId, ServiceClass, Span, Ticket, Time, TokenCosts, Tokens, check,
};

const MODEL: ModelId = ModelId(0);
const REPLICA: ReplicaId = ReplicaId(1);
const LASTS: Time = Time(600_000);
/// The key of the requests with absurd usage.
const ABSURD: KeyId = KeyId(1);
const KEYS_PER_GROUP: u64 = 3;
/// A request reports its tokens in this many parts.
const PARTS: u64 = 8;
/// A client that announces this many tokens leaves before it gets them.
const ANNOUNCED: u64 = 1_000_000;

/// Planted faults that the referee must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupFault {
    /// The pool does not know the groups.
    GroupsUnknown,
    /// The gates report no tokens.
    TokensUnseen,
    /// The pool is not informed of the class of requests.
    ClassesUnseen,
}

#[derive(Clone, Copy, Debug)]
pub struct GroupStorm {
    pub seed: u64,
    pub fault: Option<GroupFault>,
    /// Every estimate is right, and no client leaves before its response is complete: the bound of F1 is half as large.
    pub has_right_estimates: bool,
    /// Engines that report more tokens than they can have produced. The group of such a request is not judged.
    pub has_absurd_usage: bool,
}

#[derive(Clone, Debug, Default)]
pub struct GroupStormReport {
    pub requests: u64,
    pub served: u64,
    /// Requests of the key whose engine reports absurd usage.
    pub served_absurd: u64,
    pub left: u64,
    pub changes: u64,
    /// The largest difference of service, in thousandths of its bound.
    pub worst: u64,
    pub broken: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Asks(KeyId),
    Part(Ticket, u64),
    Leaves(Ticket),
    Ready,
    Changes,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    key: KeyId,
    class: ServiceClass,
    takes: Tokens,
    part: Span,
    leaves_after: Option<u64>,
}

struct Member {
    group: u32,
    /// Its requests are longer, and it has more of them.
    is_heavy: bool,
    class: ServiceClass,
    /// The longest pause between two of its requests, in milliseconds.
    pause: u64,
}

struct Play {
    storm: GroupStorm,
    random: Random,
    world: World,
    timeline: Timeline<Due>,
    groups: Vec<Group>,
    members: BTreeMap<KeyId, Member>,
    open: BTreeMap<Ticket, Request>,
    tickets: u64,
    seats: u32,
    costs: (u64, u64),
    longest: u64,
    is_ready: bool,
    referee: GroupReferee,
    report: GroupStormReport,
}

impl GroupStorm {
    pub fn run(self) -> GroupStormReport {
        let mut play = Play::new(self);
        play.play(LASTS, 2_000_000);
        play.report.worst = play.referee.worst;
        play.report.broken.append(&mut play.referee.broken);
        play.report
    }
}

impl Scene for Play {
    type Due = Due;

    fn timeline(&mut self) -> &mut Timeline<Due> {
        &mut self.timeline
    }

    fn world(&self) -> &World {
        &self.world
    }

    fn happens(&mut self, at: Time, due: Due) {
        match due {
            Due::Asks(key) => self.asks(at, key),
            Due::Part(ticket, nth) => self.part(at, ticket, nth),
            Due::Leaves(ticket) => {
                if !self.world.seats.contains_key(&ticket)
                    && let Some(request) = self.open.remove(&ticket)
                {
                    self.report.left += 1;
                    self.referee.no_longer_waits(ticket);
                    self.feed(at, vec![Event::RequestLeft { ticket }]);
                    self.asks_again(at, request.key);
                }
            }
            Due::Ready => {
                self.is_ready = true;
                self.feed(at, vec![Event::ReplicaReady { replica: REPLICA }]);
            }
            Due::Changes => self.groups_change(at),
        }
    }

    fn timer_fires(&mut self, at: Time) {
        self.feed(at, vec![Event::TimerFired]);
    }

    fn is_broken(&self) -> bool {
        !self.referee.broken.is_empty() || !self.report.broken.is_empty()
    }
}

impl Play {
    fn new(storm: GroupStorm) -> Play {
        let mut random = Random::new(storm.seed);
        let groups = random_groups(&mut random);
        let parents: BTreeSet<GroupId> = groups.iter().filter_map(|group| group.parent).collect();
        let mut members = BTreeMap::new();
        for group in groups.iter().filter(|group| !parents.contains(&group.id)) {
            let is_heavy = random.chance(300);
            let pauses = random.chance(300);
            let classes = [
                ServiceClass::Default,
                ServiceClass::Default,
                ServiceClass::Flex,
            ];
            for _ in 0..random.between(1, KEYS_PER_GROUP) {
                let reserved = group.reserved_permille > 0 && random.chance(500);
                let class = classes[random.below(3) as usize];
                let member = Member {
                    group: group.id.0,
                    is_heavy,
                    class: if reserved {
                        ServiceClass::Priority
                    } else {
                        class
                    },
                    pause: if pauses { random.between(1, 30_000) } else { 0 },
                };
                members.insert(KeyId(members.len() as u64 + 1), member);
            }
        }
        let seats = random.between(1, 8) as u32;
        let costs = (random.between(10, 500), random.between(500, 20_000));
        let longest = random.between(20, 200);
        let mut play = Play {
            storm,
            world: World::new(Pool::new(Limits::default(), false, REPLICA)),
            timeline: Timeline::new(),
            groups,
            members,
            open: BTreeMap::new(),
            tickets: 0,
            seats,
            costs,
            longest,
            is_ready: false,
            referee: GroupReferee::default(),
            report: GroupStormReport::default(),
            random,
        };
        let largest = play.cost(Tokens {
            prompt: longest * 10,
            output: longest,
        });
        play.referee.row = largest * u64::from(seats);
        let factor = if storm.has_right_estimates { 2 } else { 4 };
        play.referee.apart_max = factor * (play.referee.row + largest);
        play.begin();
        play
    }

    fn begin(&mut self) {
        let reading = DeviceReading {
            name: "gpu0".into(),
            total: Bytes(10 << 30),
            ..DeviceReading::default()
        };
        let spec = ModelSpec {
            name: "shared".into(),
            bytes_per_device: Bytes(8 << 30),
            seats_per_replica: self.seats,
            queue_limit: 100_000,
            queue_timeout: Span::from_secs(86_400),
            keep_hot: Span::from_secs(86_400),
            ..ModelSpec::default()
        };
        let (device, model) = (DeviceId(0), MODEL);
        let costs = TokenCosts::new(self.costs.0, self.costs.1);
        let start = vec![
            Event::DeviceRead { device, reading },
            Event::ModelSet { model, spec },
            Event::TokensMeasured { model, costs },
        ];
        self.feed(Time(0), start);
        self.groups_are_set(Time(0));
        let keys: Vec<KeyId> = self.members.keys().copied().collect();
        for key in keys {
            let open = if self.members[&key].is_heavy { 40 } else { 12 };
            for _ in 0..open {
                let first = self.random.below(2_000);
                self.timeline.push(Time(first), Due::Asks(key));
            }
        }
        self.timeline.push(Time(3_000), Due::Ready);
        for _ in 0..self.random.below(3) {
            let at = self.random.below(LASTS.0);
            self.timeline.push(Time(at), Due::Changes);
        }
    }

    fn cost(&self, tokens: Tokens) -> u64 {
        tokens.prompt * self.costs.0 + tokens.output * self.costs.1
    }

    fn groups_are_set(&mut self, at: Time) {
        let known: BTreeSet<u32> = self.groups.iter().map(|group| group.id.0).collect();
        let members = self.members.iter();
        let members = members.filter(|(_, member)| known.contains(&member.group));
        let members = members.map(|(key, member)| (*key, GroupId(member.group)));
        let groups = Groups::new(self.groups.clone(), members).expect("the tree is valid");
        let parents: BTreeSet<GroupId> = self
            .groups
            .iter()
            .filter_map(|group| group.parent)
            .collect();
        let paths = self.members.iter().map(|(&key, member)| {
            let mut path: Path = Vec::new();
            let mut next = self.groups.iter().find(|group| group.id.0 == member.group);
            // Keys of a deleted group have none.
            let home = next.map_or(0, |group| group.id.0);
            path.push((Sharer::Key(key), Some(home), 1));
            if next.is_none() && !self.groups.is_empty() {
                let top = self.groups.iter().filter(|group| group.parent.is_none());
                let least = top.map(|group| group.weight).min().unwrap_or(1);
                path.push((Sharer::Group(0), None, u64::from(least)));
            }
            while let Some(group) = next {
                let parent = group.parent.map(|parent| parent.0);
                path.push((Sharer::Group(group.id.0), parent, u64::from(group.weight)));
                next = self
                    .groups
                    .iter()
                    .find(|other| Some(other.id) == group.parent);
            }
            (key, path)
        });
        let reserved = self
            .groups
            .iter()
            .filter(|group| group.reserved_permille > 0);
        let reserved = reserved.map(|group| (group.id.0, u64::from(group.reserved_permille)));
        debug_assert!(
            self.members
                .values()
                .all(|member| !parents.contains(&GroupId(member.group)))
        );
        let (paths, reserved): (BTreeMap<KeyId, Path>, _) = (paths.collect(), reserved.collect());
        if self.storm.has_absurd_usage {
            let path = paths[&ABSURD].iter().map(|(sharer, ..)| *sharer);
            self.referee.ignored.extend(path);
        }
        self.referee.groups_are(paths, reserved);
        if self.storm.fault != Some(GroupFault::GroupsUnknown) {
            self.feed(at, vec![Event::GroupsSet { groups }]);
        }
    }

    /// A group without children is deleted while its requests wait and run, or a weight changes.
    fn groups_change(&mut self, at: Time) {
        self.report.changes += 1;
        let nth = self.random.below(self.groups.len() as u64) as usize;
        let id = self.groups[nth].id;
        let has_children = self.groups.iter().any(|group| group.parent == Some(id));
        if !has_children && self.groups.len() > 2 && self.random.chance(500) {
            self.groups.remove(nth);
            // A parent without children would become the group of no key.
            let parents: BTreeSet<GroupId> = self
                .groups
                .iter()
                .filter_map(|group| group.parent)
                .collect();
            let used: BTreeSet<u32> = self.members.values().map(|member| member.group).collect();
            self.groups
                .retain(|group| parents.contains(&group.id) || used.contains(&group.id.0));
        } else {
            self.groups[nth].weight = self.random.between(1, 8) as u32;
        }
        self.groups_are_set(at);
    }

    fn asks(&mut self, at: Time, key: KeyId) {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.report.requests += 1;
        let member = &self.members[&key];
        let (class, is_heavy) = (member.class, member.is_heavy);
        let longest = if is_heavy {
            self.longest
        } else {
            self.longest / 10
        };
        let takes = Tokens {
            prompt: self.random.between(1, longest * 10),
            output: self.random.between(1, longest),
        };
        // The engine is faster or slower than measured.
        let pace = self.random.between(500, 2_000);
        let took = self.cost(takes) * pace / 1_000_000 / PARTS;
        let is_right = self.storm.has_right_estimates;
        let leaves_after = self.random.chance(50).then(|| self.random.below(PARTS));
        let leaves_after = leaves_after.filter(|_| !is_right);
        let expected = match self.random.below(10) {
            _ if is_right => takes,
            0 => Tokens::ZERO,
            1 => Tokens {
                output: ANNOUNCED,
                ..takes
            },
            2 => Tokens {
                output: takes.output * 3,
                ..takes
            },
            _ => takes,
        };
        let request = Request {
            key,
            class,
            takes,
            part: Span(took.max(1)),
            leaves_after,
        };
        self.open.insert(ticket, request);
        self.world.now = self.world.now.max(at);
        let seen = if self.storm.fault == Some(GroupFault::ClassesUnseen) {
            ServiceClass::Default
        } else {
            class
        };
        self.world.describe(ticket, seen, expected);
        if self.is_ready && self.world.enter((ticket, key), REPLICA, self.seats, at) {
            self.timeline.push(at + request.part, Due::Part(ticket, 1));
            return;
        }
        self.referee.waits(ticket, key, class);
        if self.random.chance(30) {
            let gives_up = self.random.below(20_000);
            self.timeline.push(at + Span(gives_up), Due::Leaves(ticket));
        }
        let (arrived, described) = (
            Event::RequestArrived {
                ticket,
                model: MODEL,
                key,
            },
            Event::RequestDescribed {
                ticket,
                class: seen,
                expected,
            },
        );
        self.feed(at, vec![arrived, described]);
    }

    fn asks_again(&mut self, at: Time, key: KeyId) {
        let pause = self.random.below(self.members[&key].pause + 1);
        self.timeline.push(at + Span(pause), Due::Asks(key));
    }

    /// A request has taken the next part of its tokens.
    fn part(&mut self, at: Time, ticket: Ticket, nth: u64) {
        let request = self.open[&ticket];
        let upto = |all: u64, nth: u64| all * nth / PARTS;
        let of = |all: u64| upto(all, nth) - upto(all, nth - 1);
        let tokens = Tokens {
            prompt: of(request.takes.prompt),
            output: of(request.takes.output),
        };
        let mut reported = tokens;
        if self.storm.has_absurd_usage && request.key == ABSURD {
            reported.output = u64::MAX / 2;
        }
        if self.storm.fault != Some(GroupFault::TokensUnseen) {
            self.world.takes_tokens(ticket, reported);
        }
        let service = self.cost(tokens);
        self.referee.is_served(request.key, request.class, service);
        if nth < PARTS && request.leaves_after != Some(nth) {
            self.timeline
                .push(at + request.part, Due::Part(ticket, nth + 1));
            return;
        }
        self.open.remove(&ticket);
        self.report.served += 1;
        self.report.served_absurd += u64::from(request.key == ABSURD);
        let event = self.world.end(ticket, at);
        self.feed(at, event.into_iter().collect());
        self.asks_again(at, request.key);
    }

    fn feed(&mut self, at: Time, events: Vec<Event>) {
        let actions = self.world.feed_all(at, events);
        for action in actions {
            match action {
                Action::Grant { ticket, .. } => {
                    self.referee.is_granted(ticket);
                    let part = self.open[&ticket].part;
                    self.timeline.push(at + part, Due::Part(ticket, 1));
                }
                Action::Stop { .. } | Action::Refuse { .. } => {
                    self.report.broken.push(format!("F3: {action:?}"));
                }
                _ => {}
            }
        }
        if self.is_ready {
            let inside = self
                .world
                .gates
                .get(&REPLICA)
                .map_or(0, |gate| gate.in_flight);
            self.referee
                .seats_are_free(self.seats.saturating_sub(inside));
        }
        if self.random.chance(20) {
            let found = check(&self.world.pool);
            self.report
                .broken
                .extend(found.iter().map(|violation| format!("{violation}")));
        }
    }
}

/// A tree of up to two levels. Reserved shares are half of what the weights give in any case.
fn random_groups(random: &mut Random) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut add = |parent: Option<u32>, weight: u64| {
        let id = groups.len() as u32 + 1;
        groups.push(Group {
            id: GroupId(id),
            name: format!("group-{id}"),
            parent: parent.map(GroupId),
            weight: weight as u32,
            reserved_permille: 0,
        });
        id
    };
    for _ in 0..random.between(2, 5) {
        let top = add(None, random.between(1, 4));
        if random.chance(300) {
            for _ in 0..random.between(1, 3) {
                add(Some(top), random.between(1, 4));
            }
        }
    }
    if random.chance(500) {
        let all: u32 = groups
            .iter()
            .filter(|group| group.parent.is_none())
            .map(|group| group.weight)
            .sum();
        let parents: BTreeSet<GroupId> = groups.iter().filter_map(|group| group.parent).collect();
        let leaf = |group: &&mut Group| group.parent.is_none() && !parents.contains(&group.id);
        if let Some(group) = groups.iter_mut().find(leaf) {
            group.reserved_permille = group.weight * 500 / all;
        }
    }
    groups
}

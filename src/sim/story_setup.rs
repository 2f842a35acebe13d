//! The devices and models of a story, and their reports. Produces events; the pool decides what follows.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::args::{Options, bytes, number, span};
use super::story::StoryRunner;
use pool::{
    Bytes, DeviceId, DeviceReading, Event, FetchEnd, HostReading, KeepHotScope, KindId, Layout,
    Link, Loader, LoaderId, ModelId, ModelSpec, NodeId, NodeSpan, Parking, Priority, Remedy,
    ReplicaId, Scaling, Span, Time, UNTIL_NEEDED,
};

impl StoryRunner {
    pub(super) fn device(&mut self, args: &[&str]) -> Result<(), String> {
        let name = args.get(1).ok_or("which device?")?;
        let total = bytes(args.get(2).ok_or("how large?")?)?;
        let options = Options::from_args(&args[3..])?;
        let foreign = options.get("foreign").map(bytes).transpose()?;
        let reading = DeviceReading {
            name: (*name).to_owned(),
            node: NodeId(options.number("node")?.unwrap_or(0) as u32),
            kind: KindId(options.number("kind")?.unwrap_or(0) as u32),
            taken: options.has("measured").then_some(self.world.now),
            total,
            foreign: foreign.unwrap_or_default(),
            ..DeviceReading::default()
        };
        let fresh = DeviceId(self.devices.len() as u32);
        let known = self.devices.get(*name).map(|(device, _)| *device);
        let device = known.unwrap_or(fresh);
        self.devices
            .insert((*name).to_owned(), (device, reading.clone()));
        self.world
            .feed(self.world.now, Event::DeviceRead { device, reading });
        if let Some(others) = options.get("link") {
            for other in others.split(',') {
                let other = self.device_named(Some(&other))?;
                self.links.push((device, other, Link::NvLink));
            }
            let links = self.links.clone();
            self.world.feed(self.world.now, Event::LinksRead { links });
        }
        Ok(())
    }

    pub(super) fn model(&mut self, args: &[&str], transcript: &mut String) -> Result<(), String> {
        let name = *args.get(1).ok_or("which model?")?;
        let size = bytes(args.get(2).ok_or("how large?")?)?;
        let options = Options::from_args(&args[3..])?;
        let or = |key: &str, default: Span| {
            options
                .get(key)
                .map(span)
                .transpose()
                .map(|span| span.unwrap_or(default))
        };
        let reload = or("reload", Span::from_secs(5))?;
        let loader = match options.number("disk")? {
            Some(disk) => Some(Loader {
                loader: LoaderId(disk as u32),
                takes: or("reads", reload)?,
            }),
            None => None,
        };
        let parking = match options.get("sleeps") {
            Some(host) => Some(Parking {
                host: bytes(host)?,
                resident_per_device: options.get("keeps").map_or(Ok(Bytes::ZERO), bytes)?,
                wakes_in: or("wakes", Span::from_secs(1))?,
            }),
            None => None,
        };
        let scaling = match options.number("most")? {
            Some(most) => Some(Scaling {
                most: most as u32,
                target_milli: options.number("target")?.unwrap_or(2) * 1000,
                look_back: or("over", Span::from_secs(30))?,
                up_delay: or("up", Span::from_secs(30))?,
                down_delay: or("down", Span::from_secs(600))?,
                ..Scaling::default()
            }),
            None => None,
        };
        let allowed = options.get("on").map(|names| {
            let devices = names.split(',').map(|name| self.device_named(Some(&name)));
            devices.collect::<Result<_, _>>()
        });
        let wider = options.get("wider").map(|all| all.split(',').map(layout));
        let spec = ModelSpec {
            name: name.to_owned(),
            priority: Priority(options.number("priority")?.unwrap_or(0) as u32),
            devices_per_replica: options.times.unwrap_or(1),
            nodes: match options.get("nodes") {
                Some("needed") => NodeSpan::AsNeeded,
                Some(_) => {
                    let count = options.number("nodes")?.unwrap_or(1);
                    NodeSpan::Exactly(count as u32)
                }
                None => NodeSpan::One,
            },
            bytes_per_device: size,
            host_bytes: options.get("part").map_or(Ok(Bytes::ZERO), bytes)?,
            host_mapped: options.get("mapped").map_or(Ok(Bytes::ZERO), bytes)?,
            need_is_fixed: options.has("fixed"),
            wider: match wider {
                Some(all) => all.collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
            allowed: allowed.transpose()?,
            keep_hot: match options.get("keep_hot") {
                Some("until_needed") => UNTIL_NEEDED,
                _ => or("keep_hot", Span::from_secs(600))?,
            },
            keep_hot_scope: match options.get("scope") {
                None | Some("model") => KeepHotScope::Model,
                Some("device") => KeepHotScope::Device,
                Some(other) => return Err(format!("`{other}` is not a keep-hot scope")),
            },
            min_resident: options.get("resident").map(span).transpose()?,
            max_turn: options.get("turn").map(span).transpose()?,
            queue_limit: options.number("queue")?.unwrap_or(512) as u32,
            queue_timeout: or("timeout", Span::from_secs(300))?,
            seats_per_replica: options.number("seats")?.unwrap_or(8) as u32,
            load_deadline: or("deadline", Span::from_secs(300))?,
            reload,
            reload_is_guess: options.has("guessed"),
            stop_grace: or("grace", Span::from_secs(10))?,
            loader,
            parking,
            scaling: scaling.map(Box::new),
            started_with: options.number("settings")?.unwrap_or(0),
            absent: options.has("absent"),
            ..ModelSpec::default()
        };
        let fresh = ModelId(self.models.len() as u32);
        let model = *self.models.entry(name.to_owned()).or_insert(fresh);
        self.feed(self.world.now, Event::ModelSet { model, spec }, transcript);
        Ok(())
    }

    /// `host 200GiB [node 1] [reserve 20GiB] [available 300GiB] [total 512GiB]`: the memory that sleepers may use, and the machine's.
    pub(super) fn host(&mut self, args: &[&str]) -> Result<(), String> {
        let capacity = bytes(args.get(1).ok_or("a size is missing")?)?;
        let options = Options::from_args(&args[2..])?;
        let or = |key: &str, default| options.get(key).map_or(Ok(default), bytes);
        let node = NodeId(options.number("node")?.unwrap_or(0) as u32);
        let reading = HostReading {
            capacity,
            reserve: or("reserve", Bytes::ZERO)?,
            available: or("available", Bytes(capacity.0 * 2))?,
            total: or("total", Bytes::ZERO)?,
        };
        self.hosts.insert(node, reading);
        self.world
            .feed(self.world.now, Event::HostRead { node, reading });
        Ok(())
    }

    /// `memory 30GiB [node 1]`: the memory that is available now.
    pub(super) fn host_memory(&mut self, rest: &[&str]) -> Result<Event, String> {
        let available = bytes(rest.first().ok_or("how much?")?)?;
        let options = Options::from_args(&rest[1..])?;
        let node = NodeId(options.number("node")?.unwrap_or(0) as u32);
        let reading = self.hosts.get_mut(&node).ok_or("a node without a host")?;
        reading.available = available;
        let reading = *reading;
        Ok(Event::HostRead { node, reading })
    }

    /// `reading d0 [foreign 3GiB] [own 1=30GiB]`: taken now. Foreign memory includes unreturned memory of ended processes.
    pub(super) fn reading(&mut self, at: Time, rest: &[&str]) -> Result<Event, String> {
        let name = *rest.first().ok_or("which device?")?;
        let options = Options::from_args(&rest[1..])?;
        let (device, reading) = self
            .devices
            .get_mut(name)
            .ok_or_else(|| format!("no device {name}"))?;
        if reading.taken.is_some() {
            reading.taken = Some(at);
        }
        if let Some(foreign) = options.get("foreign") {
            reading.foreign = bytes(foreign)?;
        }
        reading.own.clear();
        if let Some(own) = options.get("own") {
            let (replica, held) = own.split_once('=').ok_or("no replica: `own 1=30GiB`")?;
            let replica = ReplicaId(number(Some(&replica))?);
            reading.own.push((replica, bytes(held)?));
        }
        Ok(Event::DeviceRead {
            device: *device,
            reading: reading.clone(),
        })
    }

    /// `fails d0 [lost]: Xid 79`.
    pub(super) fn trouble(&self, rest: &[&str]) -> Result<Event, String> {
        let all = rest.join(" ");
        let (who, trouble) = all.split_once(": ").ok_or("no reason: `fails d0: WORDS`")?;
        let mut who = who.split_whitespace();
        let device = self.device_named(who.next().as_ref())?;
        let lost = match who.next() {
            None => false,
            Some("lost") => true,
            Some(other) => return Err(format!("`{other}` is neither a reason nor `lost`")),
        };
        Ok(Event::DeviceFailed {
            device,
            trouble: trouble.to_owned(),
            lost,
        })
    }

    /// `measured NAME 30GiB [x2] [kind 1]`.
    pub(super) fn measured(&self, rest: &[&str]) -> Result<Event, String> {
        let options = Options::from_args(rest.get(2..).unwrap_or_default())?;
        Ok(Event::ModelMeasured {
            model: self.named(rest.first())?,
            devices: options.times.unwrap_or(1),
            kind: KindId(options.number("kind")?.unwrap_or(0) as u32),
            bytes_per_device: bytes(rest.get(1).ok_or("how much?")?)?,
        })
    }

    /// `fetched NAME` after a new `model` line, `unfetched NAME WORDS`, `ungettable NAME WORDS` (a permanent failure),
    /// `fetch_ends NAME` after the order to end it, `fetching NAME 20s` for the time left.
    pub(super) fn fetch(&self, what: &str, rest: &[&str]) -> Result<Event, String> {
        let model = self.named(rest.first())?;
        let message = rest.get(1..).unwrap_or_default().join(" ");
        let end = match what {
            "fetching" => {
                let left = span(rest.get(1).ok_or("the time left is missing")?)?;
                return Ok(Event::FetchProgressed { model, left });
            }
            "fetched" => FetchEnd::Complete,
            "fetch_ends" => FetchEnd::Cancelled,
            "unfetched" => FetchEnd::Failed {
                message,
                remedy: Remedy::Time,
            },
            _ => FetchEnd::Failed {
                message,
                remedy: Remedy::Change,
            },
        };
        Ok(Event::FetchEnded { model, end })
    }

    pub(super) fn device_named(&self, name: Option<&&str>) -> Result<DeviceId, String> {
        let name = *name.ok_or("which device?")?;
        let found = self.devices.get(name).map(|(device, _)| *device);
        found.ok_or_else(|| format!("no device {name}"))
    }
}

/// `2x40GiB`.
fn layout(text: &str) -> Result<Layout, String> {
    let (devices, each) = text
        .split_once('x')
        .ok_or_else(|| format!("`{text}` is not a layout such as 2x40GiB"))?;
    Ok(Layout {
        devices: number(Some(&devices))? as u32,
        bytes_per_device: bytes(each)?,
    })
}

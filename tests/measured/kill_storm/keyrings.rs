//! An administrator of keys and devices: creates, changes and revokes keys, cordons and uncordons a device. Records acknowledged
//! changes, and compares them after each start and takeover.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::administrators::{PossibleValues, change};
use super::world::{World, add, call};

const KEYS_MAX: usize = 12;
const DEVICE: &str = "gpu1";

struct Key {
    secret: String,
    name: PossibleValues<String>,
    /// False once revoked.
    lives: PossibleValues<bool>,
}

#[derive(Default)]
struct Ring {
    keys: BTreeMap<String, Key>,
    cordoned: PossibleValues<bool>,
    made: u64,
}

pub fn change_until_the_end(world: &World, mut random: StdRng) {
    let mut ring = Ring::default();
    let mut seen = 0;
    while !world.is_over() && world.is_whole() {
        if world.quiet.load(Ordering::SeqCst) {
            add(&world.waiting);
            while world.quiet.load(Ordering::SeqCst) && !world.is_over() {
                world.pause(20);
            }
            world.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        let serving = world.serving.load(Ordering::SeqCst);
        if seen != serving && ring.compares(world) {
            seen = serving;
            add(&world.tally.compared);
        }
        match random.random_range(0..10) {
            0..4 => ring.makes(world),
            4..6 => ring.renames(world, &mut random),
            6..8 => ring.revokes(world, &mut random),
            _ => ring.cordons(world),
        }
        world.pause(random.random_range(1..150));
    }
    if world.is_whole() && !ring.compares(world) {
        world.lost("the last comparison of keys was not answered".to_owned());
    }
}

impl Ring {
    fn makes(&mut self, world: &World) {
        self.made += 1;
        let name = format!("storm {}", self.made);
        let body = json!({"name": name, "role": "user"});
        if self.keys.len() >= KEYS_MAX {
            return;
        }
        if let Some((200, made)) = change(world, "POST", "/llm/admin/keys", &body) {
            let text = |field: &str| made[field].as_str().unwrap_or_default().to_owned();
            let mut key = Key {
                secret: text("key"),
                name: PossibleValues::default(),
                lives: PossibleValues::default(),
            };
            key.name.acknowledged(name);
            key.lives.acknowledged(true);
            self.keys.insert(text("id"), key);
        }
    }

    fn any(&mut self, random: &mut StdRng) -> Option<(String, &mut Key)> {
        let nth = random.random_range(0..self.keys.len().max(1));
        let (id, key) = self.keys.iter_mut().nth(nth)?;
        Some((id.clone(), key))
    }

    fn renames(&mut self, world: &World, random: &mut StdRng) {
        let name = format!("renamed {}", random.random_range(0..1_000_000));
        let Some((id, key)) = self.any(random) else {
            return;
        };
        key.name.asked(name.clone());
        let path = format!("/llm/admin/keys?id={id}");
        match change(world, "PATCH", &path, &json!({"name": name})) {
            Some((200, _)) => key.name.acknowledged(name),
            // It is revoked, perhaps by a request without a response.
            Some(_) => key.name.refused(),
            None => {}
        }
    }

    fn revokes(&mut self, world: &World, random: &mut StdRng) {
        let Some((id, key)) = self.any(random) else {
            return;
        };
        key.lives.asked(false);
        let path = format!("/llm/admin/keys?id={id}");
        // Otherwise it was revoked before, or the request got no response.
        if let Some((200, _)) = change(world, "DELETE", &path, &json!({})) {
            key.lives.acknowledged(false);
        }
    }

    fn cordons(&mut self, world: &World) {
        let wanted = !self.cordoned.known();
        let (path, body) = if wanted {
            (
                "cordon",
                json!({"device": DEVICE, "reason": "a storm", "wait": false}),
            )
        } else {
            ("uncordon", json!({"device": DEVICE}))
        };
        self.cordoned.asked(wanted);
        let changed = change(world, "POST", &format!("/llm/admin/devices/{path}"), &body);
        // Otherwise an earlier request without a response has done it.
        if let Some((200 | 202, _)) = changed {
            self.cordoned.acknowledged(wanted);
        }
    }

    /// Returns true if everything could be compared.
    fn compares(&mut self, world: &World) -> bool {
        let span = world.begins();
        let (Ok((200, list)), Ok((200, devices))) = (
            world.admin("GET", "/llm/admin/keys", ""),
            world.admin("GET", "/llm/admin/devices", ""),
        ) else {
            if !world.excuses(span) {
                world.lost("keys and devices are not shown".to_owned());
            }
            return false;
        };
        let devices = devices["devices"].as_array().cloned().unwrap_or_default();
        let device = devices.iter().find(|device| device["device"] == DEVICE);
        let cordoned = device.is_some_and(|device| !device["cordon"].is_null());
        let before = self.cordoned.clone();
        if !self.cordoned.settles(|expected| *expected == cordoned) {
            world.lost(format!(
                "{DEVICE} is cordoned: {cordoned}, and was {before:?}"
            ));
        }
        let shown = |id: &str| -> Option<Value> {
            let keys = list["keys"].as_array()?;
            keys.iter().find(|key| key["id"] == id).cloned()
        };
        for (id, key) in &mut self.keys {
            let listed = shown(id);
            let status = match call(world.address, "GET", "/v1/models", "", &key.secret) {
                Ok((status, _)) => status,
                Err(error) => {
                    if !world.excuses(span) {
                        world.lost(format!("a request with a key failed: {error}"));
                    }
                    return false;
                }
            };
            let before = key.lives.clone();
            let lives = listed.is_some();
            if (status == 200) != lives && !world.excuses(span) {
                world.lost(format!(
                    "key {id} is listed: {lives}, and is answered {status}"
                ));
            }
            if !key.lives.settles(|expected| *expected == lives) {
                world.lost(format!("key {id} lives: {lives}, and was {before:?}"));
            }
            if let Some(listed) = listed {
                let before = key.name.clone();
                if !key
                    .name
                    .settles(|expected| listed["name"] == expected.as_str())
                {
                    world.lost(format!("key {id} is {listed}, and was {before:?}"));
                }
            }
        }
        // Some revoked keys are kept for later tests.
        while self.keys.len() >= KEYS_MAX {
            let dead = self.keys.iter().find(|(_, key)| !*key.lives.known());
            let Some(id) = dead.map(|(id, _)| id.clone()) else {
                break;
            };
            self.keys.remove(&id);
        }
        true
    }
}

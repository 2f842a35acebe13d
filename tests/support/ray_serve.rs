//! A double of Ray Serve that responds like a real one (tests/fixtures/ray/serve-*.json): the applications API of Ray's dashboard,
//! and Serve's HTTP proxy. An application needs several status requests to start and to disappear.
//! One file because the double is one HTTP server with one state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::servers::{ScriptedServer, http};

const APPLICATIONS: &str = "/api/serve/applications/";
/// Number of status requests until a deployed application is running.
const STARTS_IN: u32 = 3;
/// Number of status requests that still show a removed application.
const LEAVES_IN: u32 = 2;
/// Ray's response to a list with an application without an import path.
const INVALID: &str = "1 validation error for ServeDeploySchema\napplications.0.import_path\n  Field required [type=missing, input_value={'name': 'q'}, input_type=dict]\n    For further information visit https://errors.pydantic.dev/2.14/v/missing";

pub struct RayServe {
    dashboard: ScriptedServer,
    proxy: ScriptedServer,
    state: Arc<Mutex<ServeState>>,
}

/// The applications, as another program may change them: names, and configurations as text.
pub type Applications = BTreeMap<String, String>;
type Change = Box<dyn FnOnce(&mut Applications) + Send>;

#[derive(Default)]
struct ServeState {
    applications: BTreeMap<String, DeployedApplication>,
    writes: Vec<String>,
    after_looks: Option<(u32, Change)>,
    after_write: Option<Change>,
    holds_next: bool,
    held: Option<String>,
    token: Option<String>,
    port: u16,
    is_down: bool,
    is_restarting: bool,
    is_without_serve: bool,
    is_started: bool,
}

struct DeployedApplication {
    /// The configuration as it was written.
    config: String,
    looks: u32,
    is_leaving: bool,
}

impl RayServe {
    pub fn start() -> RayServe {
        let state: Arc<Mutex<ServeState>> = Arc::default();
        let own = Arc::clone(&state);
        let proxy =
            ScriptedServer::server(move |request| own.lock().unwrap().through_proxy(request));
        let port = proxy.address.rsplit(':').next().unwrap().parse().unwrap();
        state.lock().unwrap().port = port;
        let own = Arc::clone(&state);
        let dashboard = ScriptedServer::server(move |request| own.lock().unwrap().respond(request));
        RayServe {
            dashboard,
            proxy,
            state,
        }
    }

    /// Address of the dashboard.
    pub fn address(&self) -> String {
        self.dashboard.url("")
    }

    /// Requires the token for each call from now on.
    pub fn require(&self, token: &str) {
        self.state.lock().unwrap().token = Some(token.to_owned());
    }

    /// While down, closes connections without a response. Serve itself continues to run.
    pub fn set_down(&self, is_down: bool) {
        self.state.lock().unwrap().is_down = is_down;
    }

    /// Shows running applications as starting, as after a restart of Ray's head. Their replicas continue to run.
    pub fn set_restarting(&self, is_restarting: bool) {
        self.state.lock().unwrap().is_restarting = is_restarting;
    }

    /// While set, the list of applications is missing, as shortly after the start of a head.
    pub fn set_without_serve(&self, is_without_serve: bool) {
        self.state.lock().unwrap().is_without_serve = is_without_serve;
    }

    /// Deploys an application from another program; it runs immediately.
    pub fn deploy(&self, name: &str, config: &str) {
        self.state
            .lock()
            .unwrap()
            .change(|applications| drop(applications.insert(name.to_owned(), config.to_owned())));
    }

    /// Removes an application from another program.
    pub fn remove(&self, name: &str) {
        self.state
            .lock()
            .unwrap()
            .change(|applications| drop(applications.remove(name)));
    }

    /// Applies another program's change once this number of status requests has been served.
    pub fn after_looks(&self, looks: u32, change: impl FnOnce(&mut Applications) + Send + 'static) {
        self.state.lock().unwrap().after_looks = Some((looks, Box::new(change)));
    }

    /// Applies another program's change directly after the next write.
    pub fn after_write(&self, change: impl FnOnce(&mut Applications) + Send + 'static) {
        self.state.lock().unwrap().after_write = Some(Box::new(change));
    }

    /// Cuts off the next write: its connection ends without a response, and Ray carries it out later.
    pub fn cut_off_next_write(&self) {
        self.state.lock().unwrap().holds_next = true;
    }

    /// Carries out the write that was cut off, regardless of later writes.
    pub fn carry_out_late(&self) {
        let mut state = self.state.lock().unwrap();
        let body = state.held.take().expect("a write that was cut off");
        state.write(&body);
    }

    /// The bodies of all writes.
    pub fn writes(&self) -> Vec<String> {
        self.state.lock().unwrap().writes.clone()
    }

    /// Applications that are deployed and not being removed.
    pub fn names(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let there = state
            .applications
            .iter()
            .filter(|(_, application)| !application.is_leaving);
        there.map(|(name, _)| name.clone()).collect()
    }

    /// Configuration of an application.
    pub fn config(&self, name: &str) -> Value {
        let state = self.state.lock().unwrap();
        let found = state.applications.get(name);
        found.map_or(Value::Null, |application| {
            serde_json::from_str(&application.config).unwrap()
        })
    }

    /// Requests received by the proxy.
    pub fn requests(&self) -> Vec<String> {
        self.proxy.asked()
    }
}

impl ServeState {
    fn respond(&mut self, request: &str) -> String {
        if self.is_down {
            return String::new();
        }
        let (head, body) = request.split_once("\r\n\r\n").unwrap_or((request, ""));
        let lower = head.to_lowercase();
        if let Some(token) = &self.token {
            let is_known =
                lower.contains(&format!("authorization: bearer {}", token.to_lowercase()));
            if !lower.contains("authorization:") {
                return http(
                    "401 Unauthorized",
                    "",
                    "Unauthorized: Missing authentication token",
                );
            }
            if !is_known {
                return http(
                    "403 Forbidden",
                    "",
                    "Forbidden: Invalid authentication token",
                );
            }
        }
        let mut words = head.split(' ');
        match (words.next(), words.next()) {
            (_, Some(APPLICATIONS)) if self.is_without_serve => {
                http("404 Not Found", "", "404: Not Found")
            }
            (Some("GET"), Some(APPLICATIONS)) => {
                let list = self.list().to_string();
                let list = self.with_texts(&list);
                self.age();
                http("200 OK", "content-type: application/json\r\n", &list)
            }
            (Some("PUT"), Some(APPLICATIONS)) if self.holds_next => {
                self.holds_next = false;
                self.held = Some(body.to_owned());
                String::new()
            }
            (Some("PUT"), Some(APPLICATIONS)) => self.write(body),
            _ => http("404 Not Found", "", "404: Not Found"),
        }
    }

    /// The list with a placeholder for each configuration, which is sent as it was written.
    fn list(&self) -> Value {
        if !self.is_started {
            return json!({"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": null});
        }
        let applications = self.applications.iter();
        let applications = applications.map(|(name, application)| {
            let mut shown = application.shown(name);
            if self.is_restarting && application.runs() {
                shown["status"] = json!("DEPLOYING");
            }
            (name.clone(), shown)
        });
        json!({
            "proxy_location": "EveryNode",
            "http_options": {"host": "127.0.0.1", "port": self.port, "root_path": ""},
            "applications": applications.collect::<serde_json::Map<_, _>>(),
            "target_capacity": null,
        })
    }

    fn with_texts(&self, list: &str) -> String {
        let applications = self.applications.iter();
        applications.fold(list.to_owned(), |list, (name, application)| {
            list.replace(&format!("\"<{name}>\""), &application.config)
        })
    }

    fn age(&mut self) {
        for application in self.applications.values_mut() {
            application.looks += 1;
        }
        self.applications
            .retain(|_, application| !application.is_leaving || application.looks < LEAVES_IN);
        if let Some((looks, change)) = self.after_looks.take() {
            match looks {
                1 => self.change(change),
                _ => self.after_looks = Some((looks - 1, change)),
            }
        }
    }

    fn write(&mut self, body: &str) -> String {
        self.writes.push(body.to_owned());
        let Ok(list) = serde_json::from_str::<Value>(body) else {
            return http("500 Internal Server Error", "", "JSONDecodeError: no JSON");
        };
        let none = Vec::new();
        let written = list["applications"].as_array().unwrap_or(&none);
        if written
            .iter()
            .any(|application| application["import_path"].as_str().is_none())
        {
            return http("400 Bad Request", "", INVALID);
        }
        let name =
            |application: &Value| application["name"].as_str().unwrap_or_default().to_owned();
        let written: BTreeMap<String, &Value> = written
            .iter()
            .map(|application| (name(application), application))
            .collect();
        self.is_started = true;
        for (name, config) in &written {
            let before = self
                .applications
                .get(name)
                .filter(|before| !before.is_leaving);
            let is_same = before.is_some_and(|before| {
                serde_json::from_str::<Value>(&before.config).is_ok_and(|before| before == **config)
            });
            if !is_same {
                let deployed = DeployedApplication {
                    config: config.to_string(),
                    looks: 0,
                    is_leaving: false,
                };
                self.applications.insert(name.clone(), deployed);
            }
        }
        for (name, application) in &mut self.applications {
            if !written.contains_key(name) && !application.is_leaving {
                (application.is_leaving, application.looks) = (true, 0);
            }
        }
        if let Some(change) = self.after_write.take() {
            self.change(change);
        }
        http("200 OK", "", "")
    }

    /// Applies a change by another program.
    fn change(&mut self, change: impl FnOnce(&mut Applications)) {
        self.is_started = true;
        let there = self
            .applications
            .iter()
            .filter(|(_, application)| !application.is_leaving);
        let mut all: Applications = there
            .map(|(name, application)| (name.clone(), application.config.clone()))
            .collect();
        change(&mut all);
        for (name, application) in &mut self.applications {
            if !all.contains_key(name) && !application.is_leaving {
                (application.is_leaving, application.looks) = (true, 0);
            }
        }
        for (name, config) in all {
            let known = self.applications.get(&name);
            if known.is_none_or(|known| known.is_leaving || known.config != config) {
                let deployed = DeployedApplication {
                    config,
                    looks: STARTS_IN,
                    is_leaving: false,
                };
                self.applications.insert(name, deployed);
            }
        }
    }

    fn through_proxy(&self, request: &str) -> String {
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next());
        let path = path.unwrap_or_default();
        let found = self.applications.iter().find(|(name, application)| {
            application.runs()
                && path
                    .strip_prefix('/')
                    .is_some_and(|path| path.starts_with(&format!("{name}/")))
        });
        let Some((name, _)) = found else {
            return http("404 Not Found", "", &format!("Path '{path}' not found."));
        };
        match (
            method,
            path.ends_with("/v1/models"),
            path.ends_with("/v1/chat/completions"),
        ) {
            ("GET", true, _) => http("200 OK", "", "{\"object\":\"list\",\"data\":[]}"),
            ("POST", _, true) => {
                let chunk = |delta: Value, end: Value| {
                    let choice = json!({"index": 0, "delta": delta, "finish_reason": end});
                    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
                    format!("data: {chunk}\n\n")
                };
                let text = format!("Hello from {name}");
                let events = [
                    chunk(json!({"role": "assistant", "content": text}), Value::Null),
                    chunk(json!({}), json!("stop")),
                    "data: [DONE]\n\n".to_owned(),
                ];
                http(
                    "200 OK",
                    "content-type: text/event-stream\r\n",
                    &events.concat(),
                )
            }
            _ => http("404 Not Found", "", "{\"detail\":\"Not Found\"}"),
        }
    }
}

impl DeployedApplication {
    fn failure(&self) -> Option<String> {
        let config: Value = serde_json::from_str(&self.config).unwrap_or_default();
        config["args"]["fail"].as_str().map(str::to_owned)
    }

    fn runs(&self) -> bool {
        !self.is_leaving && self.looks >= STARTS_IN && self.failure().is_none()
    }

    /// Serve's description of an application, with a placeholder for the configuration.
    fn shown(&self, name: &str) -> Value {
        let failure = self.failure().filter(|_| self.looks + 1 >= STARTS_IN);
        let (status, of_deployment) = match (&failure, self.looks) {
            _ if self.is_leaving => ("DELETING", "UPDATING"),
            (Some(_), _) => ("DEPLOY_FAILED", "DEPLOY_FAILED"),
            (None, looks) if looks >= STARTS_IN => ("RUNNING", "HEALTHY"),
            (None, _) => ("DEPLOYING", "UPDATING"),
        };
        let replica = match (&failure, self.looks) {
            (Some(_), _) => json!([]),
            (None, 1) => json!([{"replica_id": "a", "state": "STARTING"}]),
            (None, 2) => json!([{"replica_id": "a", "state": "STARTING", "node_id": "n"}]),
            (None, _) => json!([{"replica_id": "a", "state": "RUNNING", "node_id": "n"}]),
        };
        let deployments = match self.looks {
            0 => json!({}),
            _ => json!({"engine": {
                "name": "engine", "status": of_deployment, "message": failure.unwrap_or_default(),
                "target_num_replicas": 1, "replicas": replica,
            }}),
        };
        let config = if self.is_leaving {
            Value::Null
        } else {
            json!(format!("<{name}>"))
        };
        json!({
            "name": name, "route_prefix": format!("/{name}"), "status": status, "message": "",
            "deployed_app_config": config, "source": "declarative", "deployments": deployments,
        })
    }
}

//! The protocol's handler: lists the tools of the caller's role and carries out calls.

use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use axum::http::request::Parts;
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};

use crate::caller::{Caller, admin_on, manager_on};
use crate::plans::{Change, Plans, TOKEN_LIFETIME};
use crate::requests::{RouteRequest, RouteResponse, with_query};
use crate::tools::{CLEANUP, LOAD, LOAD_WAITS, MCP, MODELS, PoolTool, UNLOAD, Work};
use admin::planned::{self, PlannedChange};
use api_types::error::Failure;
use edge::record::{self, Record};
use gateway::fields::{Fields, OrderFields};
use gateway::state::App;
use pool::KeyId;

const INSTRUCTIONS: &str = "model-pool serves many models on shared devices. Read with models, devices, queue, events, why, report and usage. A change takes two calls: a plan_… tool returns the effect and a token and changes nothing; after the user agrees, apply with the token carries out exactly that plan, or refuses if the pool has changed since. Errors name the field and say what to do next.";

/// State shared by all requests.
pub(crate) struct Shared {
    pub app: App,
    /// The routes below the base path.
    pub routes: Router,
    pub tools: Vec<PoolTool>,
    pub plans: Plans,
}

/// The handler of one request.
#[derive(Clone)]
pub(crate) struct PoolServer(pub Arc<Shared>);

/// The record of the HTTP request, for the task that the protocol's library starts for it.
#[derive(Clone)]
pub(crate) struct CurrentRecord(pub Arc<Record>);

impl ServerHandler for PoolServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("model-pool", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (_, caller) = request_of(&context)?;
        let tools = self.0.tools.iter();
        let tools = tools.filter(|tool| tool.levels.contains(&caller.level));
        let tools = tools.map(|tool| tool.tool.clone()).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (parts, _) = request_of(&context)?;
        let tool = self
            .0
            .tools
            .iter()
            .find(|tool| tool.tool.name == request.name);
        let Some(tool) = tool else {
            let name: String = request.name.chars().take(100).collect();
            let names = self.0.tools.iter().map(|tool| tool.tool.name.as_ref());
            let names: Vec<&str> = names.collect();
            let message = format!(
                "no tool is called {name}; the tools are {}",
                names.join(", ")
            );
            return Err(ErrorData::invalid_params(message, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let called = self.0.call(tool, arguments, parts);
        let called = match parts.extensions.get::<CurrentRecord>() {
            Some(CurrentRecord(record)) => record::within(Arc::clone(record), called).await,
            None => called.await,
        };
        Ok(result(called).into())
    }
}

/// The head of the HTTP request and its caller, which `crate::respond` has put there.
fn request_of(context: &RequestContext<RoleServer>) -> Result<(&Parts, &Caller), ErrorData> {
    let parts = context.extensions.get::<Parts>();
    parts
        .and_then(|parts| Some((parts, parts.extensions.get::<Caller>()?)))
        .ok_or_else(|| ErrorData::internal_error("the request has no caller", None))
}

/// An error of a route is a result: programs that call tools see its message.
fn result(called: Result<RouteResponse, Failure>) -> CallToolResult {
    match called {
        Ok(response) if response.is_success => CallToolResult::structured(response.body),
        Ok(response) => error(response.body),
        Err(failure) => error(serde_json::to_value(&*failure.body).unwrap_or_default()),
    }
}

fn error(body: Value) -> CallToolResult {
    let message = body["error"]["message"]
        .as_str()
        .unwrap_or("the call failed");
    let text = ContentBlock::text(message.to_owned());
    let mut result = CallToolResult::error(vec![text]);
    result.structured_content = Some(body);
    result
}

impl Shared {
    async fn call(
        &self,
        tool: &PoolTool,
        mut arguments: Map<String, Value>,
        parts: &Parts,
    ) -> Result<RouteResponse, Failure> {
        tool.check_names(&arguments)?;
        tool.omit_nulls(&mut arguments);
        let request = match tool.work {
            Work::Get(path) => RouteRequest::get(path, &arguments)?,
            Work::Post(path) => RouteRequest::post(path, arguments),
            Work::Apply => {
                let change = self.take(arguments, parts).await?;
                RouteRequest {
                    method: change.method,
                    target: change.target,
                    body: Some(change.body),
                    effect: Some(change.effect),
                }
            }
            Work::PlanLoad => {
                arguments.entry("wait").or_insert(Value::Bool(LOAD_WAITS));
                let manager = manager_on(parts, &self.app, LOAD).await?;
                let planned = planned::load(&self.app, &manager, arguments.clone()).await?;
                let target = (Method::POST, LOAD.to_owned());
                return Ok(self.planned(planned, manager.id(), target, arguments));
            }
            Work::PlanUnload => {
                let manager = manager_on(parts, &self.app, UNLOAD).await?;
                let planned = planned::unload(&self.app, &manager, arguments.clone()).await?;
                let target = (Method::POST, UNLOAD.to_owned());
                return Ok(self.planned(planned, manager.id(), target, arguments));
            }
            Work::PlanSet => {
                let admin = admin_on(parts, &self.app, MODELS).await?;
                let model = take_model(&mut arguments)?;
                let query = Map::from_iter([("model".to_owned(), Value::from(model.as_str()))]);
                let target = (Method::PATCH, with_query(MODELS, &query)?);
                let planned = planned::set(&self.app, &admin, &model, arguments.clone()).await?;
                return Ok(self.planned(planned, admin.by, target, arguments));
            }
            Work::PlanCleanup => {
                let admin = admin_on(parts, &self.app, CLEANUP).await?;
                let planned = planned::cleanup(&self.app, &admin, arguments.clone()).await?;
                let target = (Method::POST, CLEANUP.to_owned());
                return Ok(self.planned(planned, admin.by, target, arguments));
            }
        };
        request.send(&self.routes, parts).await
    }

    /// Keeps the planned change for its holder, and returns it with its token.
    fn planned(
        &self,
        planned: PlannedChange,
        holder: KeyId,
        (method, target): (Method, String),
        body: Map<String, Value>,
    ) -> RouteResponse {
        let token = planned.effect.map(|effect| {
            let change = Change {
                method,
                target,
                body,
                effect,
            };
            let now = self.app.handle.clock().now();
            self.plans.keep(holder, change, now)
        });
        let next = match &token {
            Some(_) => "call apply with this token to carry out exactly this plan",
            None => "this change cannot be made now; the plan has the reason",
        };
        let seconds = token.as_ref().map(|_| TOKEN_LIFETIME.0 / 1_000);
        RouteResponse {
            is_success: true,
            body: json!({
                "plan": planned.view,
                "token": token,
                "expires_in_seconds": seconds,
                "next": next,
            }),
        }
    }

    /// Takes the change with the token in the arguments. Its route checks the rights of the key again.
    async fn take(&self, arguments: Map<String, Value>, parts: &Parts) -> Result<Change, Failure> {
        let manager = manager_on(parts, &self.app, MCP).await?;
        let mut fields = Fields::from(arguments);
        let token = fields.needed_text("token", "the token of a plan")?;
        let now = self.app.handle.clock().now();
        self.plans.take(manager.id(), &token, now)
    }
}

/// Takes the model of a change, which its route has in the query.
fn take_model(arguments: &mut Map<String, Value>) -> Result<String, Failure> {
    let model = arguments.remove_entry("model");
    let mut fields = Fields::from(Map::from_iter(model));
    fields.needed_text("model", "\"tiny-chat\"; the tool models lists them")
}

impl PoolTool {
    /// Removes arguments that are null, because many programs send one for each argument that they do not give. The tool that clears
    /// settings keeps them.
    pub fn omit_nulls(&self, arguments: &mut Map<String, Value>) {
        if !self.work.clears_with_null() {
            arguments.retain(|_, value| !value.is_null());
        }
    }

    /// Refuses arguments that the tool does not have.
    pub fn check_names(&self, arguments: &Map<String, Value>) -> Result<(), Failure> {
        let unknown = arguments.keys().find(|name| !self.arguments.contains(name));
        let Some(name) = unknown else {
            return Ok(());
        };
        let shown: String = name.chars().take(100).collect();
        let known = match self.arguments.as_slice() {
            [] => "the tool takes no arguments".to_owned(),
            known => format!("known here: {}", known.join(", ")),
        };
        let message = format!("{shown}: is unknown; {known}");
        Err(Failure::invalid(Some(shown), message))
    }
}

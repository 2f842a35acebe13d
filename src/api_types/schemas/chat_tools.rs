//! Chat tools, tool choice and response formats.

use serde_json::Value;
use utoipa::ToSchema;

/// A tool that the model may call.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChatTool {
    #[schema(title = "FunctionTool")]
    Function { function: FunctionDefinition },
    /// A tool with plain text input instead of JSON.
    #[schema(title = "CustomTool")]
    Custom { custom: CustomToolDefinition },
}

/// A tool with plain text input. The client runs it.
#[derive(ToSchema)]
pub struct CustomToolDefinition {
    #[schema(examples("apply_patch"))]
    pub name: String,
    /// Description of the tool for the model.
    pub description: Option<String>,
    pub format: Option<CustomToolFormat>,
}

/// Format of the input: any text, or text that matches a grammar.
#[derive(ToSchema)]
pub struct CustomToolFormat {
    /// `text` or `grammar`.
    #[schema(examples("grammar"))]
    pub r#type: Option<String>,
    /// The grammar of a tool in a chat request. Responses requests have its fields at this level.
    pub grammar: Option<CustomToolGrammar>,
    /// `lark` or `regex`.
    pub syntax: Option<String>,
    /// Text of the grammar.
    pub definition: Option<String>,
}

/// A grammar. It is enforced if it is regular and the engine supports it.
#[derive(ToSchema)]
pub struct CustomToolGrammar {
    /// `lark` or `regex`.
    #[schema(examples("regex"))]
    pub syntax: String,
    /// Text of the grammar.
    pub definition: String,
}

/// A function that the client runs.
#[derive(ToSchema)]
pub struct FunctionDefinition {
    /// 1 to 64 letters, digits, underscores and dashes.
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[a-zA-Z0-9_-]+$",
        examples("weather")
    )]
    pub name: String,
    /// Description of the function for the model.
    pub description: Option<String>,
    /// JSON schema of the arguments, of type object.
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// Enforce the schema exactly.
    pub strict: Option<bool>,
}

/// Tool choice. The default is `auto` if there are tools.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ChatToolChoice {
    Mode(ToolChoiceMode),
    Named(NamedToolChoice),
}

/// `none`: the model calls nothing. `auto`: the model decides. `required`: the model calls at least one function.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoiceMode {
    None,
    Auto,
    Required,
}

/// The model calls this function.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NamedToolChoice {
    #[schema(title = "NamedFunction")]
    Function { function: FunctionName },
    #[schema(title = "NamedCustomTool")]
    Custom { custom: FunctionName },
}

#[derive(ToSchema)]
pub struct FunctionName {
    #[schema(examples("weather"))]
    pub name: String,
}

/// A function in the older form.
#[derive(ToSchema)]
pub struct LegacyFunction {
    pub name: String,
    pub description: Option<String>,
    /// JSON schema of the arguments, of type object.
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
}

/// The choice in the older form.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum LegacyFunctionChoice {
    /// `none` or `auto`.
    Mode(String),
    Named(FunctionName),
}

/// Format of the response.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Any text.
    #[schema(title = "TextFormat")]
    Text {},
    /// A JSON object.
    #[schema(title = "JsonObjectFormat")]
    JsonObject {},
    /// JSON that matches a schema.
    #[schema(title = "JsonSchemaFormat")]
    JsonSchema { json_schema: NamedJsonSchema },
    /// Text with structured parts, an extension of vLLM.
    #[schema(title = "StructuralTagFormat")]
    StructuralTag {},
    /// JSON that matches the schema in `value`, an extension of TGI.
    #[schema(title = "JsonFormat")]
    Json {
        #[schema(value_type = Object)]
        value: Value,
    },
    /// Text that matches the expression in `value`, an extension of TGI.
    #[schema(title = "RegexFormat")]
    Regex { value: String },
}

/// A named JSON schema.
#[derive(ToSchema)]
pub struct NamedJsonSchema {
    /// 1 to 64 letters, digits, underscores and dashes.
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[a-zA-Z0-9_-]+$",
        examples("answer")
    )]
    pub name: String,
    /// Purpose of the response, for the model.
    pub description: Option<String>,
    /// The schema. Without it, any object is allowed.
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// Refuse a schema that cannot be enforced completely instead of enforcing a part.
    pub strict: Option<bool>,
}

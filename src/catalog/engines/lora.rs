//! LoRA adapters of engines: flags for the command line, and routes for loading them at run time.

/// Flags for LoRA adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lora {
    pub enable: &'static str,
    /// The flag for adapters known at start, each written `NAME=FOLDER`. `None`: the pool passes none.
    pub modules: Option<&'static str>,
    /// Routes to load and unload adapters at run time.
    pub run_time: AdapterRoutes,
    /// Options that limit the number and rank of adapters loaded at run time. Options already given are not repeated.
    pub room: &'static [(&'static str, Room)],
    /// Environment variables that enable the routes.
    pub environment: &'static [(&'static str, &'static str)],
}

/// A value of an option for adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Count,
    Rank,
    Word(&'static str),
}

/// Routes that load an adapter, given `{"lora_name", "lora_path"}`, and unload it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterRoutes {
    pub load: &'static str,
    pub unload: &'static str,
    /// If true, requests name an adapter as `base:adapter` instead of the adapter's full name.
    pub names_without_base: bool,
}

/// vLLM's routes, which the embedded engine implements too.
pub const ADAPTER_ROUTES: AdapterRoutes = AdapterRoutes {
    load: "/v1/load_lora_adapter",
    unload: "/v1/unload_lora_adapter",
    names_without_base: false,
};

pub(super) const VLLM_LORA: Lora = Lora {
    enable: "--enable-lora",
    modules: Some("--lora-modules"),
    run_time: ADAPTER_ROUTES,
    room: &[
        ("max_loras", Room::Count),
        ("max_cpu_loras", Room::Count),
        ("max_lora_rank", Room::Rank),
    ],
    environment: &[("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True")],
};

pub(super) const SGLANG_LORA: Lora = Lora {
    enable: "--enable-lora",
    modules: None,
    run_time: AdapterRoutes {
        load: "/load_lora_adapter",
        unload: "/unload_lora_adapter",
        names_without_base: true,
    },
    room: &[
        ("max_loras_per_batch", Room::Count),
        ("max_loaded_loras", Room::Count),
        ("max_lora_rank", Room::Rank),
        ("lora_target_modules", Room::Word("all")),
    ],
    environment: &[],
};

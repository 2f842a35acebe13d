//! How engines are given LoRA adapters: on their command lines, and over their routes while they run.

/// Flags for LoRA adapters: one that turns them on, and one that `NAME=FOLDER` words follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lora {
    pub enable: &'static str,
    /// Takes adapters that are written down, each as `NAME=FOLDER`; `None`: the pool gives it none.
    pub modules: Option<&'static str>,
    /// How adapters come and leave while it runs.
    pub run_time: AdapterRoutes,
    /// Options for so many adapters at run time, of at most so high a rank; those that are given already are left out.
    pub room: &'static [(&'static str, Room)],
    /// Whatever else is needed for the routes.
    pub environment: &'static [(&'static str, &'static str)],
}

/// A value of an option for adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Count,
    Rank,
    Word(&'static str),
}

/// Where an engine takes adapters while it runs, with `{"lora_name", "lora_path"}`, and forgets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterRoutes {
    pub load: &'static str,
    pub unload: &'static str,
    /// It calls `base:adapter` what others call by the adapter's whole name.
    pub names_without_base: bool,
}

/// vLLM's, which the embedded engine has as well.
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

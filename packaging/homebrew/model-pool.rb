# Builds both programs from the source archive of a release. The release workflow publishes a copy with the repository,
# the version and the digest of that release in the places of OWNER/model-pool, 0.1.0 and the zeros. docs/start/install.md says
# how to use it.
class ModelPool < Formula
  desc "OpenAI-compatible endpoint for all models of a lab, on shared GPUs"
  homepage "https://github.com/OWNER/model-pool"
  url "https://github.com/OWNER/model-pool/releases/download/v0.1.0/model-pool-0.1.0-source.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["Apache-2.0", "MIT"]
  head "https://github.com/OWNER/model-pool.git", branch: "main"

  depends_on "rust" => :build

  def install
    # The embedded engine on the GPU of Apple's processors.
    features = (OS.mac? && Hardware::CPU.arm?) ? ["--features", "metal"] : []
    system "cargo", "install", *features, *std_cargo_args
    system "cargo", "install", *std_cargo_args(path: "admin-client")
    generate_completions_from_executable(bin/"admin-client", "completions", shells: [:bash, :zsh, :fish])

    (buildpath/"model-pool.yaml").write <<~YAML
      # Only what differs from the defaults: docs/reference/configuration.md explains every key.
      state:
        dir: #{var}/model-pool/data
      catalog:
        models_dir: #{etc}/model-pool/models
        model_reference: #{etc}/model-pool/model_reference.json
    YAML
    (etc/"model-pool").install "model-pool.yaml", "model_reference.json"
    (etc/"model-pool/models").install "deploy/models/README"
    pkgshare.install "config/model-pool.yaml" => "all-keys.yaml"
    pkgshare.install "docs/examples"
  end

  def post_install
    (var/"model-pool").mkpath
  end

  def caveats
    <<~EOS
      Model files belong into #{etc}/model-pool/models; examples are in #{opt_pkgshare}/examples.
      As the account that runs the service:
        export MODEL_POOL_ADMIN_KEY_FILE=#{var}/model-pool/data/admin.key
        admin-client models
    EOS
  end

  service do
    run [opt_bin/"model-pool", "serve", "--config", etc/"model-pool/model-pool.yaml"]
    working_dir var/"model-pool"
    keep_alive true
    log_path var/"log/model-pool.log"
    error_log_path var/"log/model-pool.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/model-pool version")
    assert_match version.to_s, shell_output("#{bin}/admin-client --version")
    (testpath/"model-pool.yaml").write("state:\n  dir: data\n")
    assert_match "configuration:", shell_output("#{bin}/model-pool check --config model-pool.yaml")
  end
end

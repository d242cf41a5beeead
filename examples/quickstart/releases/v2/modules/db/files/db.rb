# frozen_string_literal: true

require_relative '../lib/daemon'
require_relative '../lib/http'

Daemon.command('db') do |config, socket|
  entries = Daemon.pairs(config.fetch('entries'))

  Http.serve(socket) do |path|
    key = path.delete_prefix('/')
    entries.key?(key) ? Http.text(200, entries[key]) : Http.text(404, "there is no #{key}")
  end
end

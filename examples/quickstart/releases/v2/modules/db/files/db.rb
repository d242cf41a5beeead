# frozen_string_literal: true

require_relative '../lib/daemon'
require_relative '../lib/http'

Daemon.command('db') do |config, socket|
  entries = File.readlines(config.fetch('entries'), chomp: true).to_h { |line| line.split('=', 2) }

  Http.serve(socket) do |path|
    key = path.delete_prefix('/')
    entries.key?(key) ? Http.text(200, entries[key]) : Http.text(404, "there is no #{key}")
  end
end

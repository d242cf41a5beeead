# frozen_string_literal: true

require_relative '../lib/backends'
require_relative '../lib/daemon'

Daemon.command('lb') do |config, socket|
  name = "#{config.fetch('node')} (#{config.fetch('version')})"
  web = Backends.new(config.fetch('web').split, Integer(config.fetch('web_port')), timeout: 3)

  Http.serve(socket) do |path|
    address, answer = web.get(path)
    # New in v2: the address of the web node that answered.
    Http::Response.new(answer.status, { 'X-Served-By' => address }, answer.body)
  rescue Backends::Unavailable => e
    Http.text(502, "#{name}: no web node answers (#{e.message})")
  end
end

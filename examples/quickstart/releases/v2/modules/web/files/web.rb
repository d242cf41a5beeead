# frozen_string_literal: true

require_relative '../lib/backends'
require_relative '../lib/daemon'

Daemon.command('web') do |config, socket|
  name = "#{config.fetch('node')} (#{config.fetch('version')})"
  db = Backends.new(config.fetch('db').split, Integer(config.fetch('db_port')), timeout: 1)

  Http.serve(socket) do |path|
    next Http.text(404, "#{name}: no such path: #{path}") unless path == '/'

    _, motto = db.get('/motto')
    Http.text(200, "#{name}: #{config.fetch('greeting')} db says: #{motto.body.strip}")
  rescue Backends::Unavailable => e
    Http.text(502, "#{name}: no db node answers (#{e.message})")
  end
end

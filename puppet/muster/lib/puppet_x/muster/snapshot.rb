# frozen_string_literal: true

require 'json'
require_relative 'natural_order'
require_relative 'run_file'

module PuppetX
  module Muster
    # Everything that this node may look up, at one revision of the store. The agent writes the file before the run; nothing
    # else is ever read, so that a run sees one consistent state and never the network.
    class Snapshot
      VARIABLE = 'MUSTER_SNAPSHOT'

      # The snapshot of this run, read once: a second look must not see another state.
      def self.current
        path = RunFile.path(VARIABLE)
        @current ||= {}
        @current[path] ||= read(path)
      end

      def self.read(path)
        new(JSON.parse(File.read(path, encoding: Encoding::UTF_8)), path)
      rescue SystemCallError => e
        raise Puppet::Error, "cannot read the snapshot in #{VARIABLE} (#{path}): #{e.message}"
      rescue JSON::ParserError, EncodingError => e
        reason = e.message.lines.first.to_s.strip[0, 160]
        raise Puppet::Error, "the snapshot in #{VARIABLE} (#{path}) is not JSON: #{reason}"
      end
      private_class_method :read

      def initialize(data, path)
        @data = data
        @path = path
        malformed('is not an object') unless data.is_a?(Hash)
        malformed('has no object "active_roles" of roles, nodes and interfaces') unless well_formed_roles?(data['active_roles'])
      end

      # One of the node's own facts, such as `node` or `interfaces`.
      def fetch(name)
        @data.fetch(name) { malformed("has no \"#{name}\"") }
      end

      # node → {interface → address}, in natural order of the nodes; nil when the environment has no such role.
      def active(role)
        @data['active_roles'][role]&.sort_by { |node, _| NaturalOrder.key(node) }&.to_h
      end

      # The addresses of the role's active nodes on one interface, in natural order of the nodes. A node without that
      # interface is left out. nil when the environment has no such role.
      def addresses(role, interface)
        active(role)&.values&.filter_map do |interfaces|
          # Hiera digs at dots, so that a key can only name eth0.100 as eth0_100.
          interfaces[interface] || interfaces.find { |name, _| name.tr('.', '_') == interface }&.last
        end
      end

      private

      def well_formed_roles?(roles)
        roles.is_a?(Hash) && roles.each_value.all? do |nodes|
          nodes.is_a?(Hash) && nodes.each_value.all?(Hash)
        end
      end

      def malformed(what)
        raise Puppet::Error, "the snapshot in #{VARIABLE} (#{@path}) #{what}"
      end
    end
  end
end
